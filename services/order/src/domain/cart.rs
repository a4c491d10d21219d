//! What an order costs. Prices come from the catalogue, never from the client.

use std::collections::BTreeMap;

use contracts::command::Line;
use contracts::money::Money;

/// A product of the catalogue.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Product {
    /// Its name in orders.
    pub sku: String,
    /// Minor units for one piece.
    pub unit_amount: i64,
    /// ISO 4217.
    pub currency: String,
}

/// Why an order cannot be taken.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Rejection {
    /// The catalogue has no such product.
    #[error("there is no product {0}")]
    UnknownSku(String),
    /// Products in two currencies cannot be paid together.
    #[error("the products are sold in different currencies")]
    MixedCurrencies,
}

impl Rejection {
    /// The stable code.
    pub fn code(&self) -> &'static str {
        match self {
            Rejection::UnknownSku(_) => "order.unknown_sku",
            Rejection::MixedCurrencies => "order.mixed_currencies",
        }
    }
}

/// One line per product, in the order of their names: everybody locks stock in this order.
pub fn merge(lines: &[Line]) -> Vec<Line> {
    let mut merged: BTreeMap<&str, i64> = BTreeMap::new();
    for line in lines {
        *merged.entry(&line.sku).or_default() += line.quantity;
    }
    merged.into_iter().map(|(sku, quantity)| Line { sku: sku.to_owned(), quantity }).collect()
}

/// The total of an order. Quantities are bounded at the edge, so that it cannot overflow.
///
/// # Errors
/// A product is unknown, or they are sold in different currencies.
pub fn total(lines: &[Line], catalogue: &[Product]) -> Result<Money, Rejection> {
    let mut amount = 0;
    let mut currency: Option<&str> = None;
    for line in lines {
        let product = catalogue
            .iter()
            .find(|product| product.sku == line.sku)
            .ok_or_else(|| Rejection::UnknownSku(line.sku.clone()))?;
        if *currency.get_or_insert(&product.currency) != product.currency {
            return Err(Rejection::MixedCurrencies);
        }
        amount += product.unit_amount * line.quantity;
    }
    Ok(Money { amount, currency: currency.unwrap_or("EUR").to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(sku: &str, quantity: i64) -> Line {
        Line { sku: sku.to_owned(), quantity }
    }

    fn product(sku: &str, unit_amount: i64, currency: &str) -> Product {
        Product { sku: sku.to_owned(), unit_amount, currency: currency.to_owned() }
    }

    #[test]
    fn lines_of_one_product_become_one_and_are_sorted() {
        let merged = merge(&[line("MOUSE", 1), line("KEYBOARD", 2), line("MOUSE", 3)]);
        assert_eq!(merged, [line("KEYBOARD", 2), line("MOUSE", 4)]);
    }

    #[test]
    fn the_total_is_made_of_catalogue_prices() {
        let catalogue = [product("KEYBOARD", 7900, "EUR"), product("MOUSE", 2900, "EUR"), product("TEA", 100, "GBP")];
        let sum = total(&[line("KEYBOARD", 2), line("MOUSE", 1)], &catalogue).unwrap();
        assert_eq!(sum, Money { amount: 18_700, currency: "EUR".to_owned() });
        let unknown = total(&[line("NOTHING", 1)], &catalogue).unwrap_err();
        assert_eq!(unknown.code(), "order.unknown_sku");
        let mixed = total(&[line("KEYBOARD", 1), line("TEA", 1)], &catalogue).unwrap_err();
        assert_eq!(mixed.code(), "order.mixed_currencies");
    }
}
