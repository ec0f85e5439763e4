//! Commands for storage elements.

use exacat_model::answer::SeUsage;
use exacat_model::{AccountName, SeStatus};
use exacat_wire::jalien::{Item, errno};

use super::{missing, options};
use crate::faces::jalien::shell::{Command, Failure, Outcome, Shell};

pub(super) const COMMANDS: &[Command] = &[
    Command {
        name: "listSEs",
        usage: "[-qos LABEL,…] [-s] [NAME|NUMBER|EXPRESSION]…\nTells the storage elements: all, or those of a name, a number or that an expression matches.",
        run: |s, o| Box::pin(list(s, o)),
    },
    Command {
        name: "listSEDistance",
        usage: "[-site SITE] [-read] [-qos LABEL]\nTells how far storage elements are from a site, the nearest first.",
        run: |s, o| Box::pin(distances(s, o)),
    },
];

/// Most bytes of the regular expression made of one option.
const EXPRESSION_BYTES_MAX: usize = 1 << 20;

fn labels(se: &SeUsage) -> String {
    se.se.qos.iter().map(AccountName::as_str).collect::<Vec<_>>().join(",")
}

fn has_labels(se: &SeUsage, wanted: &[&str]) -> bool {
    wanted.iter().all(|wanted| se.se.qos.iter().any(|label| label.as_str().eq_ignore_ascii_case(wanted)))
}

/// True if a text selects a storage element.
fn meant(se: &SeUsage, text: &str) -> Outcome<bool> {
    if se.se.name.as_str().eq_ignore_ascii_case(text) || se.se.number.0.to_string() == text {
        return Ok(true);
    }
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Ok(false);
    }
    let built =
        regex::RegexBuilder::new(text).case_insensitive(true).size_limit(EXPRESSION_BYTES_MAX).build();
    let expression = built.map_err(|error| Failure::invalid(format!("bad expression: {error}")))?;
    Ok(expression.is_match(se.se.name.as_str()))
}

async fn list(shell: &mut Shell, given: Vec<String>) -> Outcome {
    let options = options(&["s"], &["qos"], given)?;
    let wanted: Vec<&str> = options.values("qos").flat_map(|labels| labels.split(',')).collect();
    let ses = shell.ses_now().await?;
    let mut told = 0u64;
    for se in ses.iter().filter(|se| has_labels(se, &wanted)) {
        let mut is_meant = options.rest.is_empty();
        for text in &options.rest {
            is_meant = is_meant || meant(se, text)?;
        }
        if !is_meant {
            continue;
        }
        told += 1;
        // 1.0 keeps clients from choosing it.
        let demoted = |allowed: bool| if allowed { "0.0" } else { "1.0" };
        let status = se.se.status;
        let mut item = Item::new()
            .with("seName", se.se.name.as_str())
            .with("seNumber", se.se.number.0.to_string())
            .with("totalSpace", "0")
            .with("usedSpace", se.used.replica_bytes.to_string())
            .with("freeSpace", "0")
            .with("fileCount", se.used.replicas.to_string())
            .with("demoteRead", demoted(status != SeStatus::Offline))
            .with("demoteWrite", demoted(status == SeStatus::Online))
            .with("qos", labels(se))
            .with("endpointUrl", se.se.prefix.as_str());
        if !options.has("s") {
            item = item.saying(format!("{}\t{}\t{}", se.se.name, se.se.number.0, se.se.prefix));
        }
        shell.say(item).await?;
    }
    if told == 0 && !options.rest.is_empty() {
        return Err(Failure::new(
            errno::ENOENT,
            format!("no such storage element: {}", options.rest.join(" ")),
        ));
    }
    Ok(())
}

async fn distances(shell: &mut Shell, given: Vec<String>) -> Outcome {
    let options = options(&["read"], &["site", "qos"], given)?;
    if options.rest.len() > 1 {
        return Err(missing("listSEDistance"));
    }
    let site = match options.value("site") {
        Some(text) => Some(AccountName::parse(text)?),
        None => shell.site(),
    };
    let wanted: Vec<&str> = options.values("qos").collect();
    let ses = shell.ses().await?;
    let distance = |se: &SeUsage| {
        let site = site.as_ref()?;
        se.se.distances.iter().find(|(name, _)| name == site).map(|(_, distance)| *distance)
    };
    let mut found: Vec<(&SeUsage, Option<u32>)> =
        ses.iter().filter(|se| has_labels(se, &wanted)).map(|se| (se, distance(se))).collect();
    // Without a known distance, a storage element counts as far.
    found.sort_by_key(|(se, distance)| (distance.unwrap_or(u32::MAX), se.se.number));
    for (se, distance) in found {
        let shown = distance.map_or_else(|| "unknown".to_owned(), |distance| distance.to_string());
        let demoted = |allowed: bool| if allowed { "0.0" } else { "1.0" };
        let text = format!(
            "{} (read: {}, write: {}, distance: {shown})",
            se.se.name,
            demoted(se.se.status != SeStatus::Offline),
            demoted(se.se.status == SeStatus::Online)
        );
        let item = Item::new().with("seName", se.se.name.as_str()).with("distance", shown).saying(text);
        shell.say(item).await?;
    }
    Ok(())
}
