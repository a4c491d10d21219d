//! Money is an integer of minor units with its currency.

use serde::{Deserialize, Serialize};

/// An amount: `15800` of `EUR` is 158 euros.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Money {
    /// Minor units (cents).
    pub amount: i64,
    /// ISO 4217.
    pub currency: String,
}
