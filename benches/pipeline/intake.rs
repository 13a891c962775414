//! (a) Intake: signed deliveries over HTTP, durably stored, beside pgbench storing the same event and receipt.

use anyhow::ensure;

use super::Effort;
use super::bottle::{Bottle, Settings};
use super::cpu::{Used, Watch};
use super::pgbench::{self, Rate, Until};
use super::stand::Stand;
use super::table::{Table, each, middle, ms, ratio, shares, whole};
use super::tokens::{self, People, Tokens};
use super::wrk::{self, Load, Mix};

/// The level at which the goal is set.
const GOAL_AT: usize = 32;
/// Signed beforehand: enough for a run of some seconds, and not too many to sign.
const TOKENS_A_CORE: usize = 3 * tokens::BLOCK;

struct Taken {
    load: Load,
    used: Option<Used>,
}

struct Stored {
    rate: Rate,
    used: Option<Used>,
}

struct Round {
    ours: Taken,
    one: Stored,
    two: Option<Stored>,
}

pub async fn run(stand: &Stand, effort: Effort) -> anyhow::Result<()> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let tokens = tokens::signed(stand, People::Many, cores * TOKENS_A_CORE)?;
    let levels: &[usize] = if effort.quick { &[1, GOAL_AT] } else { &[1, 8, GOAL_AT, 64] };
    let mut table = Table::new(&[
        "connections",
        "deliveries",
        "Bottle /s",
        "p50 ms",
        "p99 ms",
        "CPU",
        "µs each",
        "one statement /s",
        "p99 ms",
        "CPU",
        "µs each",
        "ratio",
        "two inserts /s",
        "ratio",
    ]);
    let mut at_goal = None;
    for (connections, mix) in levels.iter().flat_map(|c| [(*c, Mix::Firsts), (*c, Mix::Copies)]) {
        let mut rounds = Vec::new();
        let wanted = if connections == GOAL_AT { effort.rounds } else { 1 };
        for n in 0..wanted {
            eprintln!("(a) {connections} connections, {}, round {} of {wanted}", name(mix), n + 1);
            rounds.push(round(stand, effort, &tokens, connections, mix).await?);
        }
        let Some(r) = middle(rounds, |r| r.ours.load.per_second / r.one.rate.per_second) else { continue };
        let (ours, one) = (&r.ours.load, &r.one.rate);
        table.row([
            connections.to_string(),
            name(mix).to_owned(),
            whole(ours.per_second),
            ms(ours.p50_ms),
            ms(ours.p99_ms),
            shares(r.ours.used),
            each(r.ours.used, ours.answered as f64),
            whole(one.per_second),
            ms(one.p99_ms),
            shares(r.one.used),
            each(r.one.used, one.count),
            ratio(ours.per_second, one.per_second),
            r.two.as_ref().map_or_else(String::new, |two| whole(two.rate.per_second)),
            r.two.as_ref().map_or_else(String::new, |two| ratio(ours.per_second, two.rate.per_second)),
        ]);
        if connections == GOAL_AT && mix == Mix::Firsts {
            at_goal = Some(r);
        }
    }
    table.print("(a) Intake: deliveries stored and answered");
    println!(
        "\nGoal at {GOAL_AT} connections, first deliveries: 0.6 of the one statement, then 1.0; p99 below 100 ms. wrk keeps each \
         connection busy, so a slow answer also holds back the next request. pgbench verifies nothing, speaks no HTTP and \
         logs nothing. After each run every delivery that was answered 200 was found in the database."
    );
    if let Some(round) = at_goal {
        beside(stand, effort, &tokens, &round).await?;
    }
    Ok(())
}

async fn round(stand: &Stand, effort: Effort, tokens: &Tokens, connections: usize, mix: Mix) -> anyhow::Result<Round> {
    let example = tokens.example()?;
    let ours = take(stand, effort, tokens, connections, mix, "web", None).await?;
    let one = store(stand, effort, &one_statement(mix), &example, connections).await?;
    let two = match mix {
        Mix::Firsts => Some(store(stand, effort, &two_inserts(), &example, connections).await?),
        Mix::Copies => None,
    };
    Ok(Round { ours, one, two })
}

/// What logging costs, and what a worker in the same process takes.
async fn beside(stand: &Stand, effort: Effort, tokens: &Tokens, plain: &Round) -> anyhow::Result<()> {
    let mut table = Table::new(&[
        "at 32 connections, first deliveries",
        "Bottle /s",
        "p50 ms",
        "p99 ms",
        "CPU",
        "µs each",
        "of the plain run",
    ]);
    let mut row = |what: &str, taken: &Taken| {
        table.row([
            what.to_owned(),
            whole(taken.load.per_second),
            ms(taken.load.p50_ms),
            ms(taken.load.p99_ms),
            shares(taken.used),
            each(taken.used, taken.load.answered as f64),
            ratio(taken.load.per_second, plain.ours.load.per_second),
        ]);
    };
    row("`bottle web`, as above", &plain.ours);
    for (what, command, log) in [
        ("`bottle web` with `BOTTLE_LOG=warn`: nothing is logged about a delivery", "web", Some("warn")),
        ("`bottle serve`: its worker applies the events meanwhile", "serve", None),
    ] {
        eprintln!("(a) {what}");
        let mut rounds = Vec::new();
        for _ in 0..effort.rounds {
            rounds.push(take(stand, effort, tokens, GOAL_AT, Mix::Firsts, command, log).await?);
        }
        if let Some(taken) = middle(rounds, |taken| taken.load.per_second) {
            row(what, &taken);
        }
    }
    table.print("(a) What logging costs, and the worker beside it");
    Ok(())
}

async fn take(
    stand: &Stand,
    effort: Effort,
    tokens: &Tokens,
    connections: usize,
    mix: Mix,
    command: &str,
    log: Option<&str>,
) -> anyhow::Result<Taken> {
    let database = stand.fresh("bench_intake").await?;
    let bottle = Bottle::start(stand, &Settings { command, database: Ok(&database), log })?;
    let warm = wrk::run(stand, bottle.port, connections, 1, tokens, 0, mix)?;
    // On a large machine the signed deliveries may be used up sooner.
    let left = u64::try_from((tokens.count - warm.sent) / (warm.sent + warm.sent / 2).max(1))?;
    let secs = effort.secs.min(left.max(1));
    let watch = Watch::new(&stand.folder, vec![bottle.pid()]);
    let before = watch.look();
    let load = wrk::run(stand, bottle.port, connections, secs, tokens, warm.sent, mix)?;
    let used = watch.since(before);
    bottle.stop()?;

    // wrk leaves the requests under way at its end uncounted; some of those are stored.
    let receipts = usize::try_from(database.count("select count(*) from receipts").await?)?;
    let (answered, sent) = (warm.answered + load.answered, warm.sent + load.sent);
    ensure!(answered <= receipts, "{answered} deliveries were answered 200, and only {receipts} have a receipt");
    ensure!(receipts <= sent, "{sent} deliveries were sent, and {receipts} have a receipt");
    let seen = usize::try_from(database.count("select coalesce(sum(seen_count), 0)::bigint from inbox_events").await?)?;
    ensure!(seen == receipts, "the events were seen {seen} times, and {receipts} deliveries have a receipt");
    if mix == Mix::Firsts {
        let events = usize::try_from(database.count("select count(*) from inbox_events").await?)?;
        ensure!(events == receipts, "{receipts} different events have a receipt, and {events} are stored");
    }
    stand.drop(database).await?;
    Ok(Taken { load, used })
}

async fn store(stand: &Stand, effort: Effort, script: &str, example: &str, connections: usize) -> anyhow::Result<Stored> {
    let database = stand.fresh("bench_intake").await?;
    let values = [("body", example), ("fresh", "0"), ("ms", "0"), ("rest", "0")];
    pgbench::run(stand, &database, script, &values, connections, &Until::Secs(1))?;
    let watch = Watch::new(&stand.folder, Vec::new());
    let before = watch.look();
    let rate = pgbench::run(stand, &database, script, &values, connections, &Until::Secs(effort.secs))?;
    let used = watch.since(before);
    stand.drop(database).await?;
    Ok(Stored { rate, used })
}

fn name(mix: Mix) -> &'static str {
    match mix {
        Mix::Firsts => "first",
        Mix::Copies => "a third copies",
    }
}

/// An event's id as Kinde makes them: milliseconds, then chance. `every` is one more than how many of them come once.
fn next_event(mix: Mix) -> &'static str {
    match mix {
        Mix::Firsts => {
            "\\set ms random(1790000000000, 1790000030000)\n\
             \\set rest random(0, 9000000000000000000)\n"
        }
        // The client's own last event once more.
        Mix::Copies => {
            "\\set fresh random(1, 3)\n\
             \\if :fresh > 1 or :ms = 0\n\
             \\set ms random(1790000000000, 1790000030000)\n\
             \\set rest random(0, 9000000000000000000)\n\
             \\endif\n"
        }
    }
}

const INSERT: &str = "\
insert into inbox_events as e (source, dedupe_key, webhook_id, type, digest, occurred_at, occurred_ns, body, received_at, due_at)
values ('kinde', 'event_' || lpad(to_hex(:ms::bigint), 12, '0') || lpad(to_hex(:rest::bigint), 20, '0'),
        'webhook_' || lpad(to_hex(:rest::bigint), 32, '0'), 'customer.agreement_cancelled',
        '\\xe3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855', now(), :ms::bigint * 1000000,
        convert_to(:body, 'UTF8'), now(), now())
on conflict (source, dedupe_key) do update set seen_count = e.seen_count + 1";

const RECEIPT: &str = "insert into receipts (event_id, webhook_id, received_at, copy)";

fn one_statement(mix: Mix) -> String {
    format!(
        "{}with stored as (\n{INSERT}\nreturning id, webhook_id, xmax = 0 as first)\n\
         {RECEIPT} select id, webhook_id, now(), not first from stored;\n",
        next_event(mix)
    )
}

fn two_inserts() -> String {
    format!(
        "{}begin;\n{INSERT}\nreturning e.id as id, xmax <> 0 as copy \\gset\n\
         {RECEIPT} values (:id, 'webhook_' || lpad(to_hex(:rest::bigint), 32, '0'), now(), :copy);\ncommit;\n",
        next_event(Mix::Firsts)
    )
}
