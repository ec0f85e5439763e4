//! Options of one command, as JAliEn's parser accepts them: `-la` for `-l -a`, one dash or two, and
//! a value after the option or behind `=`. Everything after `--` is taken literally.

/// Options that a command has.
#[derive(Clone, Copy, Debug, Default)]
pub struct OptionSet {
    /// Options without a value.
    pub flags: &'static [&'static str],
    /// Options with a value.
    pub valued: &'static [&'static str],
}

/// An option that a command does not have, or that lacks its value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadOption {
    /// The command does not have it.
    #[error("{0} is not a recognized option")]
    Unknown(String),
    /// Its value is missing.
    #[error("Option {0} requires an argument")]
    NoValue(String),
}

/// The options of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    flags: Vec<&'static str>,
    values: Vec<(&'static str, String)>,
    /// Arguments that are no options, in order.
    pub rest: Vec<String>,
}

impl Options {
    /// Separates options from other arguments.
    pub fn parse(known: OptionSet, given: Vec<String>) -> Result<Self, BadOption> {
        let mut options = Options::default();
        let mut given = given.into_iter();
        while let Some(word) = given.next() {
            if word == "--" {
                options.rest.extend(given.by_ref());
                break;
            }
            let name = match word.strip_prefix('-') {
                None | Some("") => {
                    options.rest.push(word);
                    continue;
                }
                Some(rest) => rest.strip_prefix('-').unwrap_or(rest),
            };
            if options.take_whole(known, name, &mut given)?
                || options.take_bundle(known, &word, &mut given)?
            {
                continue;
            }
            return Err(BadOption::Unknown(shortened(&word)));
        }
        Ok(options)
    }

    /// Takes an option given by its whole name.
    fn take_whole(
        &mut self,
        known: OptionSet,
        name: &str,
        given: &mut impl Iterator<Item = String>,
    ) -> Result<bool, BadOption> {
        if let Some(flag) = known.flags.iter().find(|flag| **flag == name) {
            self.flags.push(flag);
            return Ok(true);
        }
        let (name, value) = match name.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (name, None),
        };
        let Some(valued) = known.valued.iter().find(|valued| **valued == name) else { return Ok(false) };
        let value = value.or_else(|| given.next());
        self.values.push((valued, value.ok_or_else(|| BadOption::NoValue(shortened(name)))?));
        Ok(true)
    }

    /// Takes options of one letter in one word; the last may have a value.
    fn take_bundle(
        &mut self,
        known: OptionSet,
        word: &str,
        given: &mut impl Iterator<Item = String>,
    ) -> Result<bool, BadOption> {
        let Some(letters) = word.strip_prefix('-').filter(|rest| !rest.starts_with('-')) else {
            return Ok(false);
        };
        let mut flags = Vec::new();
        for (at, letter) in letters.char_indices() {
            let end = at + letter.len_utf8();
            let name = &letters[at..end];
            if let Some(flag) = known.flags.iter().find(|flag| **flag == name) {
                flags.push(*flag);
            } else if let Some(valued) = known.valued.iter().find(|valued| **valued == name) {
                let value = match &letters[end..] {
                    "" => given.next(),
                    rest => Some(rest.to_owned()),
                };
                self.values.push((valued, value.ok_or_else(|| BadOption::NoValue(shortened(name)))?));
                break;
            } else {
                return Ok(false);
            }
        }
        self.flags.append(&mut flags);
        Ok(true)
    }

    /// Says whether this flag was given.
    pub fn has(&self, flag: &str) -> bool {
        self.flags.contains(&flag)
    }

    /// Returns the value of an option; the last if it was given more than once.
    pub fn value(&self, name: &str) -> Option<&str> {
        self.values.iter().rev().find(|(known, _)| *known == name).map(|(_, value)| value.as_str())
    }

    /// Iterates over all values of an option.
    pub fn values<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.values.iter().filter(move |(known, _)| *known == name).map(|(_, value)| value.as_str())
    }
}

/// Returns the start of an option for an error text.
fn shortened(word: &str) -> String {
    const CHARACTERS_MAX: usize = 100;
    word.chars().take(CHARACTERS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: OptionSet = OptionSet { flags: &["l", "a", "F", "bulk"], valued: &["s", "x", "site"] };

    fn parse(words: &[&str]) -> Result<Options, BadOption> {
        Options::parse(KNOWN, words.iter().map(|word| (*word).to_owned()).collect())
    }

    #[test]
    fn options_come_alone_bundled_and_with_values() {
        let options = parse(&["-la", "p", "-bulk", "--site=CERN", "-s", "11", "-Fxy", "-", "q"]).unwrap();
        assert!(["l", "a", "bulk", "F"].iter().all(|flag| options.has(flag)));
        assert_eq!(options.value("site"), Some("CERN"));
        assert_eq!((options.value("s"), options.value("x")), (Some("11"), Some("y")));
        assert_eq!(options.rest, ["p", "-", "q"]);
        let twice = parse(&["-s", "1", "-s", "2"]).unwrap();
        assert_eq!(twice.value("s"), Some("2"));
        assert_eq!(twice.values("s").collect::<Vec<_>>(), ["1", "2"]);
    }

    #[test]
    fn what_comes_after_two_dashes_is_no_option() {
        let options = parse(&["-l", "--", "-a", "--", "x"]).unwrap();
        assert!(options.has("l") && !options.has("a"));
        assert_eq!(options.rest, ["-a", "--", "x"]);
    }

    #[test]
    fn what_is_not_known_or_not_whole_is_refused() {
        assert_eq!(parse(&["-q"]), Err(BadOption::Unknown("-q".into())));
        assert_eq!(parse(&["-lq"]), Err(BadOption::Unknown("-lq".into())));
        assert_eq!(parse(&["--la"]), Err(BadOption::Unknown("--la".into())));
        assert_eq!(parse(&["-s"]), Err(BadOption::NoValue("s".into())));
        assert_eq!(parse(&["-ls"]), Err(BadOption::NoValue("s".into())));
        assert_eq!(parse(&["-ä"]), Err(BadOption::Unknown("-ä".into())));
    }
}
