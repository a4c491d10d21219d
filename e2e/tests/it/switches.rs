//! Each switch of the third parties does what it says, and to those requests that its rate and seed say.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use e2e::stack::Process;
use e2e::stack::client::{Answer, send};
use e2e::{Service, Settings, Stack};
use reqwest::Method;
use sandbox::switch::{Met, SWITCHES, interfere};
use serde_json::{Value, json};
use uuid::Uuid;

const REQUESTS: i64 = 24;
const SEED: i64 = 7;
const SLOWER: Duration = Duration::from_millis(750);

/// One way of failing, and how it looks from outside.
struct Case {
    switch: &'static str,
    rate: f64,
    /// Whether an answer, and how long it took, is what the switch does.
    strikes: fn(&Answer, Duration) -> bool,
}

const CASES: [Case; 10] = [
    Case { switch: "provider_unavailable", rate: 0.5, strikes: unavailable },
    Case { switch: "provider_rate_limited", rate: 0.3, strikes: rate_limited },
    Case { switch: "provider_timeout", rate: 0.25, strikes: silent },
    Case { switch: "provider_slow", rate: 0.5, strikes: slow },
    Case { switch: "refund_refused", rate: 0.5, strikes: refused },
    Case { switch: "carrier_unavailable", rate: 0.7, strikes: unavailable },
    Case { switch: "carrier_rate_limited", rate: 0.5, strikes: rate_limited },
    Case { switch: "carrier_timeout", rate: 0.25, strikes: silent },
    Case { switch: "carrier_slow", rate: 0.3, strikes: slow },
    Case { switch: "recall_refused", rate: 0.5, strikes: refused },
];

fn unavailable(answer: &Answer, _took: Duration) -> bool {
    answer.status == 503 && answer.headers.contains_key("retry-after")
}

fn rate_limited(answer: &Answer, _took: Duration) -> bool {
    answer.status == 429 && answer.headers["retry-after"] == "1"
}

fn silent(answer: &Answer, _took: Duration) -> bool {
    answer.status == 504
}

fn slow(answer: &Answer, took: Duration) -> bool {
    answer.status == 200 && took >= SLOWER
}

fn refused(answer: &Answer, _took: Duration) -> bool {
    answer.status == 200 && answer.body["status"] == "refused"
}

#[tokio::test]
async fn a_switch_strikes_those_requests_that_its_rate_and_seed_say_and_no_other() -> anyhow::Result<()> {
    let names: BTreeSet<&str> = SWITCHES.iter().map(|(name, ..)| *name).collect();
    assert_eq!(names, CASES.iter().map(|case| case.switch).collect(), "every switch has a case");
    // A silent third party is silent for so long, not for longer than a test has.
    let stack = Stack::start_empty(Settings::default().set(Service::Sandbox, "TIMEOUT_MS", "50")).await?;
    let sandbox = stack.another(Service::Sandbox).await?;
    for Case { switch, rate, strikes } in CASES {
        set(&sandbox, Method::PUT, switch, &json!({"rate": rate, "seed": SEED, "delayMs": SLOWER.as_millis()})).await?;
        let mut struck = Vec::new();
        for number in 1..=REQUESTS {
            let (answer, took) = request(&sandbox, switch).await?;
            if strikes(&answer, took) {
                struck.push(number);
            } else {
                assert_eq!(answer.status, 200, "{switch}, request {number}: {}", answer.text);
                assert_ne!(answer.body["status"], "refused", "{switch}, request {number}");
            }
        }
        let met = |number| Met { name: switch.to_owned(), rate, seed: SEED, delay_ms: 1, number };
        let nothing = interfere(&[]);
        let said: Vec<i64> = (1..=REQUESTS).filter(|number| interfere(&[met(*number)]) != nothing).collect();
        assert_eq!(struck, said, "{switch} at {rate}");
        assert!(!said.is_empty() && said.len() < usize::try_from(REQUESTS)?, "{switch}: some and not all");
        set(&sandbox, Method::DELETE, switch, &json!({})).await?;
        let (answer, took) = request(&sandbox, switch).await?;
        assert!(answer.status == 200 && !strikes(&answer, took), "{switch} is off: {}", answer.text);
    }
    Ok(())
}

async fn set(sandbox: &Process, method: Method, switch: &str, setting: &Value) -> anyhow::Result<()> {
    let mut request = sandbox.client()?.ops_request(method.clone(), &format!("/ops/switches/{switch}"));
    if method == Method::PUT {
        request = request.json(setting);
    }
    let answer = send(request).await?;
    anyhow::ensure!(answer.status < 300, "{switch}: {}", answer.text);
    Ok(())
}

/// A request that meets the switch: something is taken; or given back, which has been taken before.
async fn request(sandbox: &Process, switch: &str) -> anyhow::Result<(Answer, Duration)> {
    let key = Uuid::now_v7().to_string();
    let is_provider = switch.starts_with("provider") || switch.starts_with("refund");
    let (path, cancel, body) = if is_provider {
        let body = json!({"key": key, "orderId": Uuid::now_v7(), "amount": 100, "currency": "EUR", "method": "pm_ok"});
        ("/provider/captures", "/provider/cancellations", body)
    } else {
        let address = json!({"name": "Ada", "street": "Main Street 1", "city": "Berlin", "postalCode": "10115",
                             "country": "DE"});
        let body = json!({"key": key, "orderId": Uuid::now_v7(), "service": "standard", "address": address,
                          "lines": [{"sku": "MOUSE", "quantity": 1}]});
        ("/carrier/shipments", "/carrier/cancellations", body)
    };
    let begin = Instant::now();
    let mut answer = sandbox.post(path, &body, &key).await?;
    if switch.ends_with("_refused") {
        answer = sandbox.post(cancel, &json!({"key": key}), &key).await?;
    }
    Ok((answer, begin.elapsed()))
}
