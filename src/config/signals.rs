//! Where the program tells how it does: metrics that are fetched, traces that are sent. None given means that it tells nobody.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use clap::Args;
use reqwest::Url;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};

use super::check::{WrongSetting, given, wrong};

#[derive(Debug, Clone, Args)]
pub struct SignalSettings {
    /// Where Prometheus finds /metrics, e.g. 127.0.0.1:9464; a listener of its own, which asks nobody who they are
    #[arg(long, global = true, env = "BOTTLE_METRICS_ADDR", value_name = "IP:PORT")]
    metrics_addr: Option<String>,
    /// Base URL of an OpenTelemetry collector that gets traces, e.g. http://127.0.0.1:4318
    #[arg(long, global = true, env = "OTEL_EXPORTER_OTLP_ENDPOINT", hide_env_values = true, value_name = "URL")]
    otlp_endpoint: Option<String>,
    /// What else to send with them, as name=value separated by commas, values percent-encoded
    #[arg(long, global = true, env = "OTEL_EXPORTER_OTLP_HEADERS", hide_env_values = true, value_name = "LIST")]
    otlp_headers: Option<String>,
    /// How they are sent; http/protobuf is the one way there is
    #[arg(long, global = true, env = "OTEL_EXPORTER_OTLP_PROTOCOL", value_name = "NAME")]
    otlp_protocol: Option<String>,
    /// What this program is called in traces
    ///
    /// [default: bottle]
    #[arg(long, global = true, env = "OTEL_SERVICE_NAME", value_name = "NAME")]
    otel_service_name: Option<String>,
}

#[derive(Debug, Clone)]
pub struct Signals {
    /// None: no metrics.
    pub metrics: Option<SocketAddr>,
    /// None: no traces.
    pub traces: Option<Traces>,
}

/// A collector of OpenTelemetry.
#[derive(Debug, Clone)]
pub struct Traces {
    /// Where traces are posted to, the path included.
    pub url: Url,
    /// Each is marked as sensitive: most hold a key.
    pub headers: HeaderMap,
    pub service: String,
}

const SERVICE: &str = "bottle";
const PROTOCOL: &str = "http/protobuf";

impl SignalSettings {
    pub(super) fn check(&self) -> Result<Signals, WrongSetting> {
        let metrics = given(self.metrics_addr.as_deref()).map(metrics_addr).transpose()?;
        // Who runs many programs sets these for all of them, so that some are given without a collector is no mistake.
        let traces = given(self.otlp_endpoint.as_deref()).map(|endpoint| self.traces(endpoint)).transpose()?;
        Ok(Signals { metrics, traces })
    }

    fn traces(&self, endpoint: &str) -> Result<Traces, WrongSetting> {
        if let Some(other) = given(self.otlp_protocol.as_deref()).filter(|protocol| *protocol != PROTOCOL) {
            return Err(wrong(
                "OTEL_EXPORTER_OTLP_PROTOCOL",
                format!(
                    "`{other}` is not spoken here; set it to {PROTOCOL}, and the endpoint to the collector's port for that (4318)"
                ),
            ));
        }
        Ok(Traces {
            url: traces_url(endpoint)?,
            headers: given(self.otlp_headers.as_deref()).map(headers).transpose()?.unwrap_or_default(),
            service: given(self.otel_service_name.as_deref()).unwrap_or(SERVICE).to_owned(),
        })
    }
}

fn metrics_addr(text: &str) -> Result<SocketAddr, WrongSetting> {
    let like = "write it like 127.0.0.1:9464";
    text.parse().map_err(|_| wrong("BOTTLE_METRICS_ADDR", format!("`{text}` is no address to listen on; {like}")))
}

/// Its path may hold a key, so it is never repeated. The path of traces is added, as the standard has it.
fn traces_url(text: &str) -> Result<Url, WrongSetting> {
    let bad = |problem: &str| wrong("OTEL_EXPORTER_OTLP_ENDPOINT", format!("{problem}; write it like http://127.0.0.1:4318"));
    let mut url = Url::parse(text).map_err(|_| bad("cannot be read"))?;
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
        return Err(bad("is neither http nor https"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(bad("has a user or password in it; put what lets you in into OTEL_EXPORTER_OTLP_HEADERS"));
    }
    let path = format!("{}/v1/traces", url.path().trim_end_matches('/'));
    url.set_path(&path);
    Ok(url)
}

fn headers(text: &str) -> Result<HeaderMap, WrongSetting> {
    let bad =
        || wrong("OTEL_EXPORTER_OTLP_HEADERS", "cannot be read; write it like name=value,other=value, values percent-encoded");
    let mut pairs = BTreeMap::new();
    for pair in text.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').ok_or_else(bad)?;
        pairs.insert(name.trim().to_lowercase(), decoded(value.trim()).ok_or_else(bad)?);
    }
    let mut headers = HeaderMap::new();
    for (name, value) in pairs {
        let name = HeaderName::try_from(name).map_err(|_| bad())?;
        let mut value = HeaderValue::from_bytes(&value).map_err(|_| bad())?;
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    Ok(headers)
}

/// Percent signs and what they stand for; a plus is a plus.
fn decoded(text: &str) -> Option<Vec<u8>> {
    let mut bytes = text.bytes();
    let mut out = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        out.push(match byte {
            b'%' => {
                let mut digit = || char::from(bytes.next()?).to_digit(16);
                u8::try_from(digit()? * 16 + digit()?).ok()?
            }
            byte => byte,
        });
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        signals: SignalSettings,
    }

    fn check(args: &[&str]) -> Result<Signals, String> {
        let line = Line::parse_from(std::iter::once(&"bottle").chain(args));
        line.signals.check().map_err(|e| e.to_string())
    }

    #[test]
    fn the_path_of_traces_is_added_to_a_collectors_address_and_what_lets_us_in_is_never_shown() {
        for (given, url) in [
            ("http://127.0.0.1:4318", "http://127.0.0.1:4318/v1/traces"),
            ("https://otlp.example/tenant-1/", "https://otlp.example/tenant-1/v1/traces"),
        ] {
            let args = ["--otlp-endpoint", given, "--otlp-headers", "x-key=hunter%202%2B,Authorization=Basic hunter=="];
            let traces = check(&args).unwrap().traces.unwrap();
            assert_eq!((traces.url.as_str(), traces.service.as_str()), (url, "bottle"));
            assert_eq!(traces.headers["x-key"], "hunter 2+");
            assert_eq!(traces.headers["authorization"], "Basic hunter==");
            assert!(!format!("{traces:?}").contains("hunter"), "{traces:?}");
        }
    }

    #[test]
    fn a_wrong_setting_is_named_and_what_may_be_secret_in_it_is_not_repeated() {
        for (args, start) in [
            (&["--metrics-addr", "9464"][..], "BOTTLE_METRICS_ADDR: `9464` is no address"),
            (&["--otlp-endpoint", "hunter2"], "OTEL_EXPORTER_OTLP_ENDPOINT: cannot be read"),
            (&["--otlp-endpoint", "ftp://x/hunter2"], "OTEL_EXPORTER_OTLP_ENDPOINT: is neither"),
            (&["--otlp-endpoint", "https://me:hunter2@x"], "OTEL_EXPORTER_OTLP_ENDPOINT: has a user"),
            (&["--otlp-endpoint", "http://x", "--otlp-headers", "hunter2"], "OTEL_EXPORTER_OTLP_HEADERS: cannot be read"),
            (&["--otlp-endpoint", "http://x", "--otlp-headers", "a=hunter2%0"], "OTEL_EXPORTER_OTLP_HEADERS: cannot"),
            (&["--otlp-endpoint", "http://x", "--otlp-headers", "a=hunter2%0a"], "OTEL_EXPORTER_OTLP_HEADERS: cannot"),
            (&["--otlp-endpoint", "http://x", "--otlp-protocol", "grpc"], "OTEL_EXPORTER_OTLP_PROTOCOL: `grpc` is not spoken"),
        ] {
            let error = check(args).map(|_| ()).unwrap_err();
            assert!(error.starts_with(start) && !error.contains("hunter2"), "{error}");
        }
        assert!(check(&["--otlp-protocol", "grpc", "--otlp-headers", "?"]).unwrap().traces.is_none(), "nothing is sent");
    }
}
