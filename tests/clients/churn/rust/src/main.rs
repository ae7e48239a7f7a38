//! Writes and reads keys through redis-rs while the cluster changes.

use redis::aio::ConnectionLike;
use redis::{AsyncCommands, Client, RedisResult, cluster::ClusterClient};
use std::env::var;
use std::time::{Duration, Instant};

#[derive(Default)]
struct Outcome {
    operations: usize,
    errors: usize,
    wrong: usize,
    told: Vec<String>,
}

async fn work<C>(mut client: C, worker: usize, until: Instant) -> Outcome
where
    C: ConnectionLike + Send + Sync,
{
    let mut outcome = Outcome::default();
    while Instant::now() < until {
        let done = outcome.operations;
        let (key, value) = (format!("redis-rs:{worker}:{}", done % 500), done.to_string());
        let found: RedisResult<Option<String>> = match client.set(&key, &value).await {
            Ok(()) => client.get(&key).await,
            Err(error) => Err(error),
        };
        match found {
            Ok(found) => {
                if found.as_ref() != Some(&value) {
                    outcome.wrong += 1;
                    outcome.told.push(format!("{key} is {found:?}, not {value}"));
                }
                outcome.operations += 1;
            }
            Err(error) => {
                outcome.errors += 1;
                outcome.told.push(error.to_string());
            }
        }
    }
    outcome
}

async fn both<C>(client: C, until: Instant) -> [Outcome; 2]
where
    C: ConnectionLike + Clone + Send + Sync + 'static,
{
    let other = tokio::spawn(work(client.clone(), 1, until));
    [work(client, 0, until).await, other.await.expect("the worker does not panic")]
}

#[tokio::main(worker_threads = 2)]
async fn main() -> RedisResult<()> {
    let text = |name| var(name).expect("churn.py sets it");
    let seeds: Vec<String> = text("SEEDS").split(',').map(|seed| format!("redis://{seed}/?protocol=resp3")).collect();
    let seconds = text("SECONDS").parse().expect("a number");
    let until = Instant::now() + Duration::from_secs_f64(seconds);
    let outcomes = if text("ENDPOINT") == "single" {
        both(Client::open(&*seeds[0])?.get_connection_manager().await?, until).await
    } else {
        both(ClusterClient::new(seeds)?.get_async_connection().await?, until).await
    };
    let sum = |count: fn(&Outcome) -> usize| outcomes.iter().map(count).sum::<usize>();
    let told: Vec<&str> = outcomes.iter().flat_map(|outcome| &outcome.told).map(String::as_str).take(3).collect();
    println!("result {} {} {} {}", sum(|o| o.operations), sum(|o| o.errors), sum(|o| o.wrong), told.join("; "));
    Ok(())
}
