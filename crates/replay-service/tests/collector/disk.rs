//! States of cached files on disk, as a cache lays them out.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use exacat_replay_service::collector::limits::DAMAGED_NAMED_MAX;
use exacat_replay_service::collector::sum_up;
use exacat_wire::xrdmon::cinfo::CINFO_BYTES_MAX;

/// Makes the state of a file with two blocks of 1 MiB, the first of them in the cache, and one access.
fn state(accesses: i64) -> Vec<u8> {
    let numbers = [1_i64 << 20, (1 << 20) + 5, 1000, 0, accesses];
    let fixed = [&numbers.map(i64::to_le_bytes).concat()[..], &[0; 4], &1_i32.to_le_bytes()].concat();
    let access = [
        &[1001_i64, 1009].map(i64::to_le_bytes).concat()[..],
        &[1_i32, 8, 0, 0].map(i32::to_le_bytes).concat(),
        &[10_i64, 20, 30].map(i64::to_le_bytes).concat(),
    ];
    let behind = [&[1][..], &access.concat()].concat();
    let sum = |bytes: &[u8]| crc32c::crc32c(bytes).to_le_bytes();
    [&4_i32.to_le_bytes()[..], &fixed, &sum(&fixed), &behind, &sum(&behind)].concat()
}

/// Makes a file of a cache: its data and state in a space, links in the namespace.
fn put(root: &Path, name: &str, state: &[u8]) {
    let (namespace, space) = (root.join("ns").join(name), root.join("space"));
    fs::create_dir_all(namespace.parent().unwrap()).unwrap();
    fs::create_dir_all(&space).unwrap();
    let stored = space.join(name.replace('/', "_"));
    fs::write(&stored, state).unwrap();
    symlink(&stored, namespace.with_added_extension("cinfo")).unwrap();
    symlink(root.join("space/data"), namespace).unwrap();
}

/// Property: states are found through their links, summed up, and given with the name of their file.
#[test]
fn states_are_summed_up() {
    let root = tempfile::tempdir().unwrap();
    put(root.path(), "data/a.root", &state(3));
    put(root.path(), "data/deep/er/b", &state(4));
    // A link back to the top is not followed.
    symlink(root.path().join("ns"), root.path().join("ns/data/loop")).unwrap();
    let mut names = Vec::new();
    let sums =
        sum_up(&root.path().join("ns"), &mut |name, file| names.push((name.to_owned(), file.accesses)));
    let sums = sums.unwrap();
    names.sort();
    assert_eq!(names, [("/data/a.root".to_owned(), 3), ("/data/deep/er/b".to_owned(), 4)]);
    assert_eq!((sums.files, sums.files_complete, sums.accesses), (2, 0, 7));
    assert_eq!((sums.blocks, sums.blocks_done, sums.bytes_done), (4, 2, 2 << 20));
    assert_eq!((sums.bytes_of_files, sums.bytes_hit, sums.bytes_miss), ((2 << 20) + 10, 20, 40));
    assert_eq!((sums.bytes_bypass, sums.first_created, sums.last_detached), (60, Some(1000), Some(1009)));
    assert_eq!((sums.damaged, sums.unread, sums.is_incomplete), (0, 0, false));
}

/// Property: damaged states, links to nothing and to directories, and huge files are counted, and no more.
#[test]
fn damaged_states_are_counted_and_some_named() {
    let root = tempfile::tempdir().unwrap();
    put(root.path(), "good", &state(1));
    let mut bad = state(1);
    bad[60] ^= 1;
    for number in 0..DAMAGED_NAMED_MAX {
        put(root.path(), &format!("bad{number}"), &bad);
    }
    put(root.path(), "empty", b"");
    put(root.path(), "huge", b"");
    let huge = fs::File::options().write(true).open(root.path().join("space/huge")).unwrap();
    huge.set_len(CINFO_BYTES_MAX as u64 + 1).unwrap();
    symlink("nowhere", root.path().join("ns/gone.cinfo")).unwrap();
    symlink(root.path(), root.path().join("ns/directory.cinfo")).unwrap();
    let sums = sum_up(&root.path().join("ns"), &mut |_, _| {}).unwrap();
    assert_eq!((sums.files, sums.damaged, sums.unread), (1, DAMAGED_NAMED_MAX as u64 + 3, 1));
    assert_eq!(sums.damaged_files.len(), DAMAGED_NAMED_MAX);
    assert!(sums.damaged_files.iter().all(|text| text.starts_with('/') && text.contains(": ")));
    let error = sum_up(&root.path().join("none"), &mut |_, _| {}).unwrap_err();
    assert!(error.message.contains("none"), "{error}");
}
