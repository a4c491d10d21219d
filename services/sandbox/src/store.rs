//! Every statement. None of them begins or commits a transaction.

pub(crate) mod decisions;
pub(crate) mod late_effects;
pub(crate) mod ledger;
pub(crate) mod switches;
