//! Every statement of the inventory service. None of them begins or commits a transaction.

pub(crate) mod reservations;
pub(crate) mod stock;
