//! Parameters as Stripe takes them: a flat form whose names nest by brackets, `line_items[0][price]`, `metadata[k]`, `expand[]`.

use std::collections::BTreeMap;

use super::refusal::Refusal;

/// Names in the one form `a[0][b]`, `[]` numbered.
#[derive(Debug, Clone, Default)]
pub struct Params(BTreeMap<String, String>);

impl Params {
    /// Of a query or a form's body.
    pub fn parse(encoded: &str) -> Self {
        let mut params = Self::default();
        params.add(encoded);
        params
    }

    pub fn add(&mut self, encoded: &str) {
        let Ok(mut url) = reqwest::Url::parse("http://form/") else { return };
        url.set_query(Some(encoded));
        for (name, value) in url.query_pairs() {
            let name = self.numbered(&name);
            self.0.insert(name, value.into_owned());
        }
    }

    /// `a[][b]` goes to the element being filled, and begins the next where that has a `b`.
    fn numbered(&self, name: &str) -> String {
        let Some((before, after)) = name.split_once("[]") else { return name.to_owned() };
        let started = |n: usize| self.0.keys().any(|key| key.starts_with(&format!("{before}[{n}]")));
        let count = (0..).take_while(|n| started(*n)).count();
        let last = count.saturating_sub(1);
        let fits = count > 0 && !after.is_empty() && !self.0.contains_key(&format!("{before}[{last}]{after}"));
        format!("{before}[{}]{after}", if fits { last } else { count })
    }

    /// A parameter that is there and not empty: an empty one unsets, where that means something.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|text| !text.is_empty())
    }

    pub fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// Whether any parameter stands below this name.
    pub fn has_under(&self, name: &str) -> bool {
        let (own, below) = (name, format!("{name}["));
        self.0.keys().any(|key| key == own || key.starts_with(&below))
    }

    pub fn required(&self, name: &str) -> Result<&str, Refusal> {
        self.text(name).ok_or_else(|| Refusal::required(name))
    }

    pub fn int(&self, name: &str) -> Result<Option<i64>, Refusal> {
        let Some(text) = self.text(name) else { return Ok(None) };
        let number =
            text.parse().map_err(|_| Refusal::param(name, format!("Invalid integer: {text}")).coded("parameter_invalid_integer"));
        number.map(Some)
    }

    pub fn flag(&self, name: &str) -> Result<Option<bool>, Refusal> {
        match self.text(name) {
            None => Ok(None),
            Some("true") => Ok(Some(true)),
            Some("false") => Ok(Some(false)),
            Some(other) => Err(Refusal::param(name, format!("Invalid boolean: {other}"))),
        }
    }

    pub fn one_of(&self, name: &str, values: &[&str]) -> Result<Option<&str>, Refusal> {
        match self.text(name) {
            Some(text) if !values.contains(&text) => {
                let all = values.join(", ");
                Err(Refusal::param(name, format!("Invalid {name}: must be one of {all}")))
            }
            found => Ok(found),
        }
    }

    /// The texts directly below a name: of a map such as `metadata`, or of an array such as `expand`.
    pub fn under(&self, name: &str) -> Vec<(String, String)> {
        let prefix = format!("{name}[");
        let inner = |key: &str| key.strip_prefix(&prefix)?.strip_suffix(']').filter(|key| !key.contains('[')).map(str::to_owned);
        let mut found: Vec<_> = self.0.iter().filter_map(|(key, value)| Some((inner(key)?, value.clone()))).collect();
        found.sort_by_key(|(key, _)| key.parse::<u32>().unwrap_or(0));
        found
    }

    /// Everything, as it came.
    pub fn flat(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// How many elements an array has.
    pub fn count(&self, name: &str) -> usize {
        (0..).take_while(|n| self.has_under(&format!("{name}[{n}]"))).count()
    }

    /// Stripe refuses a parameter it does not know, by name. `*` stands for any key or number.
    pub fn only(&self, known: &[&str]) -> Result<(), Refusal> {
        let common = ["expand[*]"];
        match self.0.keys().find(|key| !known.iter().chain(&common).any(|pattern| is_like(key, pattern))) {
            None => Ok(()),
            Some(key) => Err(Refusal::param(key, format!("Received unknown parameter: {key}")).coded("parameter_unknown")),
        }
    }

    /// The same parameters give the same text, in whatever order they came.
    pub fn fingerprint(&self) -> String {
        self.0.iter().map(|(key, value)| format!("{key}\n{value}\n")).collect()
    }
}

fn is_like(key: &str, pattern: &str) -> bool {
    let (key, pattern): (Vec<&str>, Vec<&str>) = (key.split('[').collect(), pattern.split('[').collect());
    key.len() == pattern.len() && key.iter().zip(&pattern).all(|(part, like)| part == like || *like == "*]")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brackets_nest_and_empty_ones_are_numbered() {
        let form = Params::parse("a[][x]=1&a[][y]=2&a[][x]=3&e[]=p&e[]=q&m%5Bk%20k%5D=v+w%2B&n[10]=t&n[9]=s");
        assert_eq!(form.text("a[0][y]"), Some("2"));
        assert_eq!(form.text("a[1][x]"), Some("3"));
        assert_eq!(form.count("a"), 2);
        assert_eq!(form.under("e"), [("0".into(), "p".into()), ("1".into(), "q".into())]);
        assert_eq!(form.text("m[k k]"), Some("v w+"));
        assert_eq!(form.under("n").into_iter().map(|(_, v)| v).collect::<Vec<_>>(), ["s", "t"]);
    }

    #[test]
    fn an_unknown_parameter_is_named() {
        let form = Params::parse("mode=payment&line_items[0][price]=p&line_items[0][prise]=q&metadata[any]=1&expand[]=x");
        let refusal = form.only(&["mode", "line_items[*][price]", "metadata[*]"]).unwrap_err();
        assert_eq!(refusal.param.as_deref(), Some("line_items[0][prise]"));
        assert_eq!(refusal.code, Some("parameter_unknown"));
    }
}
