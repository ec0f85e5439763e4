//! A small safe face of RocksDB's C interface: families, reads, batches that are synced, scans.

use std::ffi::{CStr, CString, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::{self, NonNull};

use exacat_model::Result;

use super::ffi;
use crate::peer::failed;

/// Rows of one kind, kept by themselves.
#[derive(Clone, Copy, Debug)]
pub struct FamilySettings {
    /// Its name.
    pub name: &'static CStr,
    /// Are single keys of it looked up? Then it has filters and hashed blocks.
    pub looked_up: bool,
    /// Bytes of a memtable.
    pub write_buffer_bytes: usize,
}

/// Settings of all families.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Bytes of the cache of blocks.
    pub cache_bytes: usize,
    /// Bytes of a block before compression.
    pub block_bytes: usize,
    /// Bits of filter for each key.
    pub filter_bits: f64,
    /// Threads that flush and compact.
    pub background_jobs: i32,
    /// Memtables of a family, before writers wait.
    pub write_buffers: i32,
    /// Bytes of a table file that are synced at once.
    pub bytes_per_sync: u64,
    /// The format of table files: the newest of 7.8.
    pub format_version: i32,
    /// Share of a memtable for its filter.
    pub memtable_filter: f64,
    /// Old log files that are written again instead of new ones.
    pub recycled_logs: usize,
}

/// Something of RocksDB's, given back when it is dropped.
struct Owned<T> {
    pointer: NonNull<T>,
    destroy: unsafe extern "C" fn(*mut T),
}

impl<T> Owned<T> {
    /// Takes what was made; `destroy` must be what RocksDB wants it given back by, and nobody else may do so.
    fn new(pointer: *mut T, destroy: unsafe extern "C" fn(*mut T)) -> Result<Self> {
        let pointer = NonNull::new(pointer).ok_or_else(|| failed("RocksDB made nothing"))?;
        Ok(Owned { pointer, destroy })
    }

    fn get(&self) -> *mut T {
        self.pointer.as_ptr()
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        // SAFETY: every call of `new` passes an object fresh from RocksDB and the function that c.h names for
        // it; the pointer stays here, so this is the one time it is given back.
        unsafe { (self.destroy)(self.pointer.as_ptr()) }
    }
}

/// Takes what a call left as its error.
fn check(error: *mut c_char) -> Result<()> {
    if error.is_null() {
        return Ok(());
    }
    // SAFETY: an error that is not null is a string ending in zero, made by malloc for the caller; it is read
    // once, copied, and freed by the function that c.h has for that.
    let text = unsafe {
        let text = CStr::from_ptr(error).to_string_lossy().into_owned();
        ffi::rocksdb_free(error.cast());
        text
    };
    Err(failed(format!("RocksDB: {text}")))
}

/// The bytes that a call lent us.
///
/// # Safety
/// `bytes` must be null or point at `len` bytes that stay and do not change for `'a`.
unsafe fn lent<'a>(bytes: *const c_char, len: usize) -> &'a [u8] {
    if bytes.is_null() || len == 0 {
        return &[];
    }
    // SAFETY: as the caller promises.
    unsafe { std::slice::from_raw_parts(bytes.cast(), len) }
}

/// An open database with a fixed list of families.
pub struct Db {
    /// In the order of the settings; given back before `raw` is closed.
    families: Vec<Owned<ffi::Family>>,
    write: Owned<ffi::WriteOptions>,
    read: Owned<ffi::ReadOptions>,
    flush: Owned<ffi::FlushOptions>,
    raw: Owned<ffi::Database>,
}

// SAFETY: RocksDB allows a database, its families and constant options to be used by any thread; nothing of
// `Db` can be changed through a shared reference but by RocksDB itself, and dropping takes the only owner.
unsafe impl Send for Db {}
// SAFETY: as above; c.h's calls on them are safe to make at the same time ("multiple threads can invoke const
// methods ... without external synchronization", and the database does its own).
unsafe impl Sync for Db {}

fn family_options(
    settings: &Settings,
    family: &FamilySettings,
    cache: &Owned<ffi::Cache>,
) -> Result<Owned<ffi::Options>> {
    // SAFETY: they take nothing and give a new object each, null at worst, which `new` refuses.
    let (options, table) = unsafe {
        (
            Owned::new(ffi::rocksdb_options_create(), ffi::rocksdb_options_destroy)?,
            Owned::new(ffi::rocksdb_block_based_options_create(), ffi::rocksdb_block_based_options_destroy)?,
        )
    };
    // SAFETY: options, table and cache live through all these calls. The table's options share the cache (a
    // counted reference) and own the filter policy from then on, which nobody else has; `options` copies the
    // table's options.
    unsafe {
        ffi::rocksdb_block_based_options_set_block_size(table.get(), settings.block_bytes);
        ffi::rocksdb_block_based_options_set_format_version(table.get(), settings.format_version);
        ffi::rocksdb_block_based_options_set_block_cache(table.get(), cache.get());
        if family.looked_up {
            let policy = ffi::rocksdb_filterpolicy_create_bloom_full(settings.filter_bits);
            ffi::rocksdb_block_based_options_set_filter_policy(table.get(), policy);
            ffi::rocksdb_block_based_options_set_data_block_index_type(
                table.get(),
                ffi::BINARY_SEARCH_AND_HASH,
            );
            ffi::rocksdb_options_set_memtable_prefix_bloom_size_ratio(
                options.get(),
                settings.memtable_filter,
            );
            ffi::rocksdb_options_set_memtable_whole_key_filtering(options.get(), 1);
        }
        ffi::rocksdb_options_set_block_based_table_factory(options.get(), table.get());
        ffi::rocksdb_options_set_write_buffer_size(options.get(), family.write_buffer_bytes);
        ffi::rocksdb_options_set_max_write_buffer_number(options.get(), settings.write_buffers);
        ffi::rocksdb_options_set_level_compaction_dynamic_level_bytes(options.get(), 1);
        ffi::rocksdb_options_set_compression(options.get(), ffi::LZ4);
        ffi::rocksdb_options_set_bottommost_compression(options.get(), ffi::ZSTD);
    }
    Ok(options)
}

fn database_options(settings: &Settings) -> Result<Owned<ffi::Options>> {
    // SAFETY: it takes nothing and gives a new object, null at worst, which `new` refuses.
    let options = unsafe { Owned::new(ffi::rocksdb_options_create(), ffi::rocksdb_options_destroy)? };
    // SAFETY: the options live through these calls, which set one value each.
    unsafe {
        ffi::rocksdb_options_set_create_if_missing(options.get(), 1);
        ffi::rocksdb_options_set_create_missing_column_families(options.get(), 1);
        ffi::rocksdb_options_set_max_background_jobs(options.get(), settings.background_jobs);
        ffi::rocksdb_options_set_bytes_per_sync(options.get(), settings.bytes_per_sync);
        ffi::rocksdb_options_set_enable_pipelined_write(options.get(), 1);
        ffi::rocksdb_options_set_recycle_log_file_num(options.get(), settings.recycled_logs);
    }
    Ok(options)
}

impl Db {
    /// Opens or makes a database. The first family must be `default`.
    pub fn open(directory: &Path, settings: &Settings, families: &[FamilySettings]) -> Result<Db> {
        let path = CString::new(directory.as_os_str().as_bytes()).map_err(failed)?;
        // SAFETY: it takes a number and gives a new object, null at worst, which `new` refuses.
        let cache = unsafe {
            Owned::new(ffi::rocksdb_cache_create_lru(settings.cache_bytes), ffi::rocksdb_cache_destroy)?
        };
        let database = database_options(settings)?;
        let options: Vec<Owned<ffi::Options>> =
            families.iter().map(|family| family_options(settings, family, &cache)).collect::<Result<_>>()?;
        let names: Vec<*const c_char> = families.iter().map(|family| family.name.as_ptr()).collect();
        let pointers: Vec<*const ffi::Options> =
            options.iter().map(|options| options.get().cast_const()).collect();
        let mut handles: Vec<*mut ffi::Family> = vec![ptr::null_mut(); families.len()];
        let mut error = ptr::null_mut();
        let count = c_int::try_from(families.len()).map_err(failed)?;
        // SAFETY: path and names end in zero; names, options and handles have `count` items each; all live
        // through the call, which copies what it keeps (the cache is counted), and fills every handle if it
        // gives no error.
        let raw = unsafe {
            ffi::rocksdb_open_column_families(
                database.get(),
                path.as_ptr(),
                count,
                names.as_ptr(),
                pointers.as_ptr(),
                handles.as_mut_ptr(),
                &mut error,
            )
        };
        check(error)?;
        let raw = Owned::new(raw, ffi::rocksdb_close)?;
        let families = handles
            .into_iter()
            .map(|handle| Owned::new(handle, ffi::rocksdb_column_family_handle_destroy))
            .collect::<Result<_>>()?;
        // SAFETY: they take nothing and give a new object each, null at worst, which `new` refuses.
        let (write, read, flush) = unsafe {
            (
                Owned::new(ffi::rocksdb_writeoptions_create(), ffi::rocksdb_writeoptions_destroy)?,
                Owned::new(ffi::rocksdb_readoptions_create(), ffi::rocksdb_readoptions_destroy)?,
                Owned::new(ffi::rocksdb_flushoptions_create(), ffi::rocksdb_flushoptions_destroy)?,
            )
        };
        // SAFETY: both live through these calls, which set one value each.
        unsafe {
            ffi::rocksdb_writeoptions_set_sync(write.get(), 1);
            ffi::rocksdb_flushoptions_set_wait(flush.get(), 1);
        }
        Ok(Db { families, write, read, flush, raw })
    }

    fn family(&self, family: usize) -> Result<*mut ffi::Family> {
        self.families.get(family).map(Owned::get).ok_or_else(|| failed(format!("no family {family}")))
    }

    /// Looks one key up; gives its value to `with`.
    pub fn get<T>(&self, family: usize, key: &[u8], with: impl FnOnce(&[u8]) -> T) -> Result<Option<T>> {
        let family = self.family(family)?;
        let mut error = ptr::null_mut();
        // SAFETY: database, options, family and key live through the call, which keeps none of them.
        let slice = unsafe {
            ffi::rocksdb_get_pinned_cf(
                self.raw.get(),
                self.read.get(),
                family,
                key.as_ptr().cast(),
                key.len(),
                &mut error,
            )
        };
        check(error)?;
        Value::of(slice).map(|value| value.map(|value| with(value.bytes())))
    }

    /// Looks many keys up; gives each one's place and value, if it has one, to `with`.
    pub fn get_many(
        &self,
        family: usize,
        keys: &[Vec<u8>],
        mut with: impl FnMut(usize, Option<&[u8]>) -> Result<()>,
    ) -> Result<()> {
        let family = self.family(family)?;
        let pointers: Vec<*const c_char> = keys.iter().map(|key| key.as_ptr().cast()).collect();
        let lengths: Vec<usize> = keys.iter().map(Vec::len).collect();
        let mut slices: Vec<*mut ffi::PinnableSlice> = vec![ptr::null_mut(); keys.len()];
        let mut errors: Vec<*mut c_char> = vec![ptr::null_mut(); keys.len()];
        // SAFETY: the four lists have as many items as there are keys; they, the keys, database, options and
        // family live through the call, which keeps none of them and sets every value and error.
        unsafe {
            ffi::rocksdb_batched_multi_get_cf(
                self.raw.get(),
                self.read.get(),
                family,
                keys.len(),
                pointers.as_ptr(),
                lengths.as_ptr(),
                slices.as_mut_ptr(),
                errors.as_mut_ptr(),
                false,
            );
        }
        // All are taken first, so that none is left behind by an early end.
        let values: Vec<Result<Option<Value>>> = slices.into_iter().map(Value::of).collect();
        let errors: Vec<Result<()>> = errors.into_iter().map(check).collect();
        errors.into_iter().collect::<Result<()>>()?;
        for (place, value) in values.into_iter().enumerate() {
            with(place, value?.as_ref().map(Value::bytes))?;
        }
        Ok(())
    }

    /// Does all of a batch or nothing, durably.
    pub fn write(&self, batch: &mut Batch<'_>) -> Result<()> {
        let mut error = ptr::null_mut();
        // SAFETY: database, options and batch live through the call; nobody else has the batch, for it is
        // borrowed exclusively.
        unsafe { ffi::rocksdb_write(self.raw.get(), self.write.get(), batch.raw.get(), &mut error) };
        check(error)
    }

    /// An empty batch for this database.
    pub fn batch(&self) -> Result<Batch<'_>> {
        // SAFETY: it takes nothing and gives a new object, null at worst, which `new` refuses.
        let raw = unsafe { Owned::new(ffi::rocksdb_writebatch_create(), ffi::rocksdb_writebatch_destroy)? };
        Ok(Batch { raw, db: self })
    }

    /// Gives the rows of a family from key `from` on and before `to`, in order.
    pub fn scan(
        &self,
        family: usize,
        from: &[u8],
        to: &[u8],
        mut with: impl FnMut(&[u8], &[u8]) -> Result<()>,
    ) -> Result<()> {
        let family = self.family(family)?;
        // SAFETY: it takes nothing and gives a new object, null at worst, which `new` refuses.
        let options =
            unsafe { Owned::new(ffi::rocksdb_readoptions_create(), ffi::rocksdb_readoptions_destroy)? };
        // SAFETY: the options keep a pointer to `to`: it lives until this function ends, they and the
        // iterator, which is made after them and so dropped before, no longer.
        unsafe {
            ffi::rocksdb_readoptions_set_iterate_upper_bound(options.get(), to.as_ptr().cast(), to.len());
        }
        // SAFETY: database, options and family live longer than the iterator, which is dropped first.
        let rows = unsafe {
            Owned::new(
                ffi::rocksdb_create_iterator_cf(self.raw.get(), options.get(), family),
                ffi::rocksdb_iter_destroy,
            )?
        };
        // SAFETY: the iterator lives; the key is read during the call only.
        unsafe { ffi::rocksdb_iter_seek(rows.get(), from.as_ptr().cast(), from.len()) };
        // SAFETY: the iterator lives.
        while unsafe { ffi::rocksdb_iter_valid(rows.get()) } != 0 {
            let (mut key_len, mut value_len) = (0, 0);
            // SAFETY: the iterator is valid: key and value are so many bytes, which stay until it is moved,
            // below, after `with` has returned them.
            let (key, value) = unsafe {
                let key = ffi::rocksdb_iter_key(rows.get(), &mut key_len);
                let value = ffi::rocksdb_iter_value(rows.get(), &mut value_len);
                (lent(key, key_len), lent(value, value_len))
            };
            with(key, value)?;
            // SAFETY: the iterator lives and is valid.
            unsafe { ffi::rocksdb_iter_next(rows.get()) };
        }
        let mut error = ptr::null_mut();
        // SAFETY: the iterator lives.
        unsafe { ffi::rocksdb_iter_get_error(rows.get(), &mut error) };
        check(error)
    }

    /// Writes the memtable of a family to a table file, and waits for that.
    pub fn flush(&self, family: usize) -> Result<()> {
        let family = self.family(family)?;
        let mut error = ptr::null_mut();
        // SAFETY: database, options and family live through the call.
        unsafe { ffi::rocksdb_flush_cf(self.raw.get(), self.flush.get(), family, &mut error) };
        check(error)
    }

    /// A figure RocksDB keeps of a family; none if it does not know it.
    pub fn figure(&self, family: usize, name: &CStr) -> Result<Option<u64>> {
        let family = self.family(family)?;
        let mut value = 0;
        // SAFETY: database and family live through the call, the name ends in zero, and the value is written
        // at most once.
        let none = unsafe { ffi::rocksdb_property_int_cf(self.raw.get(), family, name.as_ptr(), &mut value) };
        Ok((none == 0).then_some(value))
    }
}

/// A value that RocksDB holds for us.
struct Value(Owned<ffi::PinnableSlice>);

impl Value {
    /// Takes what a look-up gave; null is no value.
    fn of(slice: *mut ffi::PinnableSlice) -> Result<Option<Value>> {
        if slice.is_null() {
            return Ok(None);
        }
        Owned::new(slice, ffi::rocksdb_pinnableslice_destroy).map(|slice| Some(Value(slice)))
    }

    fn bytes(&self) -> &[u8] {
        let mut len = 0;
        // SAFETY: the slice lives as long as `self`, and its bytes stay until it is given back.
        unsafe { lent(ffi::rocksdb_pinnableslice_value(self.0.get(), &mut len), len) }
    }
}

/// Changes that are done together.
pub struct Batch<'d> {
    raw: Owned<ffi::WriteBatch>,
    db: &'d Db,
}

impl Batch<'_> {
    /// Sets a row.
    pub fn put(&mut self, family: usize, key: &[u8], value: &[u8]) -> Result<()> {
        let family = self.db.family(family)?;
        // SAFETY: batch and family live through the call (the batch borrows the database), which copies key
        // and value.
        unsafe {
            ffi::rocksdb_writebatch_put_cf(
                self.raw.get(),
                family,
                key.as_ptr().cast(),
                key.len(),
                value.as_ptr().cast(),
                value.len(),
            );
        }
        Ok(())
    }

    /// Removes a row.
    pub fn delete(&mut self, family: usize, key: &[u8]) -> Result<()> {
        let family = self.db.family(family)?;
        // SAFETY: batch and family live through the call (the batch borrows the database), which copies the
        // key.
        unsafe {
            ffi::rocksdb_writebatch_delete_cf(self.raw.get(), family, key.as_ptr().cast(), key.len());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAMILIES: [FamilySettings; 2] = [
        FamilySettings { name: c"default", looked_up: true, write_buffer_bytes: 1 << 20 },
        FamilySettings { name: c"second", looked_up: false, write_buffer_bytes: 1 << 20 },
    ];

    fn settings() -> Settings {
        Settings {
            cache_bytes: 1 << 20,
            block_bytes: 4096,
            filter_bits: 10.0,
            background_jobs: 2,
            write_buffers: 2,
            bytes_per_sync: 1 << 20,
            format_version: 5,
            memtable_filter: 0.1,
            recycled_logs: 2,
        }
    }

    fn rows(db: &Db, family: usize, from: &[u8], to: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut rows = Vec::new();
        db.scan(family, from, to, |key, value| {
            rows.push((key.to_vec(), value.to_vec()));
            Ok(())
        })
        .unwrap();
        rows
    }

    /// Rows that a batch sets are in their family only, and rows that it removes are gone. The same holds
    /// after a reopening without a flush.
    #[test]
    fn rows_are_kept() {
        let place = tempfile::tempdir().unwrap();
        let db = Db::open(place.path(), &settings(), &FAMILIES).unwrap();
        let mut batch = db.batch().unwrap();
        for number in 0..200u8 {
            batch.put(0, &[1, number], &[number; 3]).unwrap();
        }
        batch.put(1, b"empty", b"").unwrap();
        db.write(&mut batch).unwrap();
        drop(batch);
        db.flush(0).unwrap();
        let mut batch = db.batch().unwrap();
        batch.delete(0, &[1, 7]).unwrap();
        db.write(&mut batch).unwrap();
        drop(batch);
        drop(db);

        let db = Db::open(place.path(), &settings(), &FAMILIES).unwrap();
        assert_eq!(db.get(0, &[1, 8], <[u8]>::to_vec).unwrap(), Some(vec![8; 3]));
        assert_eq!(db.get(0, &[1, 7], <[u8]>::to_vec).unwrap(), None);
        assert_eq!(db.get(1, &[1, 8], <[u8]>::to_vec).unwrap(), None);
        assert_eq!(db.get(1, b"empty", <[u8]>::len).unwrap(), Some(0));
        let keys: Vec<Vec<u8>> = [9u8, 7, 3].map(|number| vec![1, number]).to_vec();
        let mut seen = Vec::new();
        db.get_many(0, &keys, |place, value| {
            seen.push((place, value.map(<[u8]>::to_vec)));
            Ok(())
        })
        .unwrap();
        assert_eq!(seen, [(0, Some(vec![9; 3])), (1, None), (2, Some(vec![3; 3]))]);
        let some = rows(&db, 0, &[1, 5], &[1, 9]);
        assert_eq!(some, [5u8, 6, 8].map(|number| (vec![1, number], vec![number; 3])));
        assert_eq!(db.figure(0, c"rocksdb.compaction-pending").unwrap(), Some(0));
        assert_eq!(db.figure(0, c"rocksdb.no-such-thing").unwrap(), None);
    }

    /// A refusal of RocksDB, and an error of a reader of rows, comes back as an error.
    #[test]
    fn errors_are_given() {
        let place = tempfile::tempdir().unwrap();
        let db = Db::open(place.path(), &settings(), &FAMILIES).unwrap();
        let locked = Db::open(place.path(), &settings(), &FAMILIES).err().unwrap();
        assert!(locked.message.contains("LOCK") || locked.message.contains("lock"), "{locked}");
        assert!(db.get(2, b"key", <[u8]>::len).is_err());
        let mut batch = db.batch().unwrap();
        batch.put(0, b"key", b"value").unwrap();
        db.write(&mut batch).unwrap();
        assert!(db.scan(0, b"a", b"z", |_, _| Err(failed("stop"))).is_err());
    }
}
