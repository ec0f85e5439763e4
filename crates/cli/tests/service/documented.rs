//! Objects that docs/reference/json.md documents for each command.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde_json::Value;

const PAGE: &str = include_str!("../../../../docs/reference/json.md");

/// Fields of an object by name, each with whether it is always present.
type Fields<'a> = BTreeMap<&'a str, bool>;

/// The page: objects by name, and the names of the objects of each command.
struct Documented {
    objects: BTreeMap<&'static str, Fields<'static>>,
    commands: BTreeMap<&'static str, Vec<&'static str>>,
}

static DOCUMENTED: LazyLock<Documented> = LazyLock::new(read);

/// Returns the texts between backquotes.
fn quoted(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

fn read() -> Documented {
    let mut documented = Documented { objects: BTreeMap::new(), commands: BTreeMap::new() };
    let mut object = None;
    for line in PAGE.lines() {
        if let Some(name) = line.strip_prefix("### ") {
            object = Some(name);
            documented.objects.insert(name, Fields::new());
        }
        let cells: Vec<&str> = line.split(" | ").collect();
        match (object, cells.as_slice()) {
            (None, [commands, objects]) if commands.starts_with("| `") => {
                let names = objects.split('[').skip(1).filter_map(|link| link.split(']').next());
                let names: Vec<&str> = names.collect();
                documented.commands.extend(quoted(commands).map(|command| (command, names.clone())));
            }
            (Some(object), [field, _, presence, ..]) if field.starts_with("| `") => {
                let field = quoted(field).next().expect("a name");
                let fields = documented.objects.get_mut(object).expect("an object");
                fields.insert(field, *presence == "always");
            }
            _ => {}
        }
    }
    assert!(documented.commands.len() > 50 && documented.objects.len() > 50, "the page is read");
    documented
}

/// Requires that a value is an object that the page documents for the command of these arguments: it
/// has all fields that are always present, and no unknown one.
#[track_caller]
pub(super) fn check(args: &[String], value: &Value) {
    let value = value.as_object().expect("an object");
    let is_at = |words: &str, place: &[String]| {
        let words: Vec<&str> = words.split(' ').collect();
        place.len() >= words.len() && words.iter().zip(place).all(|(word, arg)| word == arg)
    };
    let command = (0..args.len()).find_map(|place| {
        let of = DOCUMENTED.commands.keys().filter(|words| is_at(words, &args[place..]));
        of.max_by_key(|words| words.len())
    });
    let command = command.unwrap_or_else(|| panic!("{args:?}: its command is not in docs/reference/json.md"));
    let fits = |object: &&str| {
        let fields = &DOCUMENTED.objects[object];
        value.keys().all(|field| fields.contains_key(field.as_str()))
            && fields.iter().all(|(field, always)| !always || value.contains_key(*field))
    };
    let objects = &DOCUMENTED.commands[command];
    assert!(objects.iter().any(fits), "{args:?}: not one of {objects:?}: {value:?}");
}
