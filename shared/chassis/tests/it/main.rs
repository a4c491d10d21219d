//! The chassis as a client sees it: real sockets, no other server.

mod client;
mod http;
mod ops;
mod third_party;
