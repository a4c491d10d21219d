//! Every statement of the order service. None of them begins or commits a transaction.

pub(crate) mod moves;
pub(crate) mod orders;
pub(crate) mod sagas;
pub(crate) mod steps;
