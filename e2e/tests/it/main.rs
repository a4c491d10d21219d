//! The whole system, driven from outside: real processes on a real broker and a real database.

// The saga.
mod alerts;
mod audit;
mod chaos;
mod cli;
mod compose;
mod context;
mod degradation;
mod drill;
mod edge;
mod figures;
mod firing;
mod follow;
mod health;
mod logs;
mod messages;
mod operators;
mod outages;
mod races;
mod readme;
mod replicas;
mod retention;
mod saga;
mod scenarios;
mod seams;
mod shop;
mod surface;
mod switches;
mod traces;
mod unreadable;
mod why;
mod wire;

// What the tests stand on.
mod broker;
mod database;
mod jaeger;
mod orphan;
mod otlp;
mod proxy;
mod security;
mod stack;
mod stranger;
mod vhost;
