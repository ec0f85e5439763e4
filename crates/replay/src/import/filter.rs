//! Accesses that are taken from a source, and two of the three scales: sizes, and the share of files.

use exacat_exchange::error::{Error, Result};
use xxhash_rust::xxh3::xxh3_64;

use crate::trace::AccessRow;

/// Share of the files that clients of a site read.
#[derive(Clone, Debug, PartialEq)]
pub struct SiteShare {
    /// Site.
    pub site: String,
    /// Share, from 0 to 1.
    pub share: f64,
}

impl SiteShare {
    /// Reads `SITE=SHARE`.
    ///
    /// # Errors
    /// Says what is wrong.
    pub fn parse(text: &str) -> Result<Self> {
        let bad = || {
            Error::options(format!("a share of a site is SITE=SHARE, with a share from 0 to 1: {text:.100?}"))
        };
        let (site, share) = text.rsplit_once('=').ok_or_else(bad)?;
        let share: f64 = share.parse().map_err(|_| bad())?;
        if site.is_empty() || !(0.0..=1.0).contains(&share) {
            return Err(bad());
        }
        Ok(SiteShare { site: site.to_owned(), share })
    }
}

/// Filter of accesses. A file is taken in all its accesses, or in none, as far as its name decides.
#[derive(Clone, Debug, PartialEq)]
pub struct Filter {
    /// Sites; all if empty.
    pub sites: Vec<String>,
    /// Shares of sites; others have [`Filter::share`].
    pub site_shares: Vec<SiteShare>,
    /// Datasets; all if empty. A `*` at the end stands for any rest.
    pub datasets: Vec<String>,
    /// Directories; all if empty.
    pub under: Vec<String>,
    /// First time, in microseconds since 1970.
    pub from_us: u64,
    /// End of the time.
    pub to_us: u64,
    /// Least bytes of a file.
    pub size_min: u64,
    /// Most bytes of a file.
    pub size_max: u64,
    /// Share of files, from 0 to 1.
    pub share: f64,
    /// Other numbers choose other files.
    pub seed: u64,
    /// Factor of sizes.
    pub size_factor: f64,
}

impl Default for Filter {
    fn default() -> Self {
        Filter {
            sites: Vec::new(),
            site_shares: Vec::new(),
            datasets: Vec::new(),
            under: Vec::new(),
            from_us: 0,
            to_us: u64::MAX,
            size_min: 0,
            size_max: u64::MAX,
            share: 1.0,
            seed: 0,
            size_factor: 1.0,
        }
    }
}

impl Filter {
    /// Says whether an access is taken.
    pub fn takes(&self, row: &AccessRow<'_>) -> bool {
        let is_listed = |list: &[String], text: &str| {
            list.is_empty()
                || list.iter().any(|one| match one.strip_suffix('*') {
                    Some(begin) => text.starts_with(begin),
                    None => one == text,
                })
        };
        let is_under = |directory: &String| {
            let rest = row.name.strip_prefix(directory.trim_end_matches('/'));
            rest.is_some_and(|rest| rest.starts_with('/'))
        };
        (self.from_us..self.to_us).contains(&row.time_us)
            && (self.size_min..=self.size_max).contains(&row.size)
            && is_listed(&self.sites, row.site)
            && is_listed(&self.datasets, row.dataset)
            && (self.under.is_empty() || self.under.iter().any(is_under))
            && self.is_in_share(row)
    }

    fn is_in_share(&self, row: &AccessRow<'_>) -> bool {
        let of_site = self.site_shares.iter().find(|of| of.site == row.site);
        let share = of_site.map_or(self.share, |of| of.share);
        // 53 bits: all that a double has.
        let place = (xxh3_64(row.name.as_bytes()) ^ self.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)) >> 11;
        (place as f64) < share * (1_u64 << 53) as f64
    }

    /// Returns an access with the scaled size.
    pub(crate) fn scaled<'a>(&self, row: &AccessRow<'a>) -> AccessRow<'a> {
        let mut row = row.clone();
        if self.size_factor != 1.0 && row.size > 0 {
            row.size = ((row.size as f64 * self.size_factor).round() as u64).max(1);
            // The sum is that of other bytes.
            row.adler32 = None;
        }
        row
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str) -> AccessRow<'_> {
        AccessRow { time_us: 10, name, size: 100, site: "A", dataset: "d/x", ..AccessRow::default() }
    }

    #[test]
    fn each_condition_leaves_out_the_others() {
        let all = Filter::default();
        assert!(all.takes(&row("/a/b")));
        let list = |text: &str| vec![text.to_owned()];
        for (filter, takes) in [
            (Filter { sites: list("A"), ..all.clone() }, true),
            (Filter { sites: list("B"), ..all.clone() }, false),
            (Filter { datasets: list("d/*"), ..all.clone() }, true),
            (Filter { datasets: list("d"), ..all.clone() }, false),
            (Filter { under: list("/a/"), ..all.clone() }, true),
            (Filter { under: list("/"), ..all.clone() }, true),
            (Filter { under: list("/a/b"), ..all.clone() }, false),
            (Filter { from_us: 10, to_us: 11, ..all.clone() }, true),
            (Filter { to_us: 10, ..all.clone() }, false),
            (Filter { size_min: 100, size_max: 100, ..all.clone() }, true),
            (Filter { size_min: 101, ..all.clone() }, false),
            (Filter { size_max: 99, ..all.clone() }, false),
            (Filter { share: 0.0, ..all.clone() }, false),
        ] {
            assert_eq!(filter.takes(&row("/a/b")), takes, "{filter:?}");
        }
    }

    /// Property: a share takes that many of the files, the same each time, and others with another seed.
    #[test]
    fn shares_are_of_files() {
        let names: Vec<String> = (0..10_000).map(|number| format!("/f{number}")).collect();
        let taken = |filter: &Filter| -> Vec<&String> {
            names.iter().filter(|name| filter.takes(&row(name))).collect()
        };
        let some = Filter { share: 0.3, ..Filter::default() };
        assert!((2_800..3_200).contains(&taken(&some).len()));
        assert_eq!(taken(&some), taken(&some));
        assert_ne!(taken(&some), taken(&Filter { seed: 1, ..some.clone() }));
        let of_site =
            |text: &str| Filter { site_shares: vec![SiteShare::parse(text).unwrap()], ..some.clone() };
        assert_eq!(taken(&of_site("A=1")).len(), names.len());
        assert_eq!(taken(&of_site("A=0")).len(), 0);
        assert_eq!(taken(&of_site("B=1")), taken(&some));
        for bad in ["A", "=1", "A=2", "A=-1", "A=x", "A=NaN"] {
            assert!(SiteShare::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn scaled_files_have_a_byte_and_no_sum() {
        let filter = Filter { size_factor: 0.001, ..Filter::default() };
        let row = AccessRow { adler32: Some(1), ..row("/a") };
        let scaled = filter.scaled(&row);
        assert_eq!((scaled.size, scaled.adler32), (1, None));
        assert_eq!(Filter::default().scaled(&row), row);
    }
}
