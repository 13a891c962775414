//! Load over HTTP, from wrk. Each request carries the next delivery of the tokens' file.

use std::process::Command;

use anyhow::{Context, ensure};

use super::stand::Stand;
use super::tokens::Tokens;

/// What wrk saw.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    pub answered: usize,
    pub sent: usize,
    pub per_second: f64,
    pub p50_ms: f64,
    pub p99_ms: f64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Mix {
    /// Every delivery is its event's first.
    Firsts,
    /// Every third is a copy of an event that was sent a little before.
    Copies,
}

/// A delivery comes again after this many others.
const COPY_AFTER: usize = 150;

/// Sends from the `first` token on, `secs` long.
pub fn run(
    stand: &Stand,
    port: u16,
    connections: usize,
    secs: u64,
    tokens: &Tokens,
    first: usize,
    mix: Mix,
) -> anyhow::Result<Load> {
    let script = stand.folder.join("deliver.lua");
    std::fs::write(&script, lua(tokens, first, mix)?)?;
    let output = Command::new("wrk")
        .args(["-t1", &format!("-c{connections}"), &format!("-d{secs}s"), "--timeout", "10s", "-s"])
        .arg(&script)
        .arg(format!("http://127.0.0.1:{port}/webhooks/kinde"))
        .output()
        .context("wrk, which sends the load (Debian: apt-get install wrk)")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let result = text
        .lines()
        .find_map(|line| line.strip_prefix("RESULT "))
        .with_context(|| format!("wrk said nothing of use:\n{text}{}", String::from_utf8_lossy(&output.stderr)))?;
    let numbers = result.split(' ').map(str::parse).collect::<Result<Vec<f64>, _>>()?;
    let [answered, took_us, p50_us, p99_us, refused, failed, sent, ran_out] = numbers[..] else {
        anyhow::bail!("wrk said: {result}")
    };
    ensure!(refused == 0.0, "{refused} deliveries were not answered 200; see bottle.log in {}", stand.folder.display());
    ensure!(failed == 0.0, "{failed} requests failed or timed out");
    ensure!(ran_out == 0.0, "there were too few signed deliveries for this run");
    Ok(Load {
        answered: count(answered),
        sent: count(sent),
        per_second: answered * 1e6 / took_us,
        p50_ms: p50_us / 1e3,
        p99_ms: p99_us / 1e3,
    })
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count, printed as a whole number")]
fn count(value: f64) -> usize {
    value as usize
}

fn lua(tokens: &Tokens, first: usize, mix: Mix) -> anyhow::Result<String> {
    let path = tokens.path.to_str().context("the tokens' path is text")?;
    let every = if mix == Mix::Copies { 3 } else { 0 };
    let offset = tokens.offset_of(first)?;
    Ok(format!(
        r#"-- Made by the benchmark. Its one thread sends each delivery of the file in turn.
local every, back = {every}, {COPY_AFTER}
local file, fresh, looked_at = nil, 0, false
local last, threads = {{}}, {{}}
sent, ran_out = 0, 0

function setup(thread) table.insert(threads, thread) end

function init(args)
    file = io.open("{path}")
    file:seek("set", {offset})
end

local function next_of_file()
    local line = file:read("*l")
    if not line then ran_out = 1; return last[fresh % back] end
    local token, webhook_id = line:match("^(%S+) (%S+)$")
    return "POST /webhooks/kinde HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/jwt\r\nwebhook-id: " .. webhook_id
        .. "\r\nContent-Length: " .. #token .. "\r\n\r\n" .. token
end

function request()
    -- Before it begins wrk asks for one request to look at; it does not send that one.
    if not looked_at then looked_at = true; return wrk.format("POST") end
    sent = sent + 1
    if every > 0 and sent % every == 0 and fresh > back then return last[(fresh + 1) % back] end
    fresh = fresh + 1
    last[fresh % back] = next_of_file()
    return last[fresh % back]
end

function done(summary, latency, _)
    local e = summary.errors
    local thread = threads[1]
    io.write(string.format("RESULT %d %d %d %d %d %d %d %d\n", summary.requests, summary.duration, latency:percentile(50),
        latency:percentile(99), e.status, e.connect + e.read + e.write + e.timeout, thread:get("sent"), thread:get("ran_out")))
end
"#
    ))
}
