//! Part of RocksDB's C interface, declared as in `rocksdb/c.h` of version 7.8.

use std::ffi::{c_char, c_double, c_int, c_uchar};
use std::marker::{PhantomData, PhantomPinned};

macro_rules! opaque {
    ($($name:ident: $what:literal),* $(,)?) => {$(
        #[doc = $what]
        #[repr(C)]
        pub struct $name {
            _data: [u8; 0],
            _not_ours: PhantomData<(*mut u8, PhantomPinned)>,
        }
    )*};
}

opaque! {
    Database: "`rocksdb_t`",
    Options: "`rocksdb_options_t`",
    TableOptions: "`rocksdb_block_based_table_options_t`",
    Family: "`rocksdb_column_family_handle_t`",
    Cache: "`rocksdb_cache_t`",
    FilterPolicy: "`rocksdb_filterpolicy_t`",
    WriteBatch: "`rocksdb_writebatch_t`",
    WriteOptions: "`rocksdb_writeoptions_t`",
    ReadOptions: "`rocksdb_readoptions_t`",
    FlushOptions: "`rocksdb_flushoptions_t`",
    PinnableSlice: "`rocksdb_pinnableslice_t`",
    RawIterator: "`rocksdb_iterator_t`",
}

/// `rocksdb_lz4_compression`
pub const LZ4: c_int = 4;
/// `rocksdb_zstd_compression`
pub const ZSTD: c_int = 7;
/// `rocksdb_block_based_table_data_block_index_type_binary_search_and_hash`
pub const BINARY_SEARCH_AND_HASH: c_int = 1;

#[link(name = "rocksdb")]
unsafe extern "C" {
    pub fn rocksdb_open_column_families(
        options: *const Options,
        name: *const c_char,
        num_column_families: c_int,
        column_family_names: *const *const c_char,
        column_family_options: *const *const Options,
        column_family_handles: *mut *mut Family,
        errptr: *mut *mut c_char,
    ) -> *mut Database;
    pub fn rocksdb_column_family_handle_destroy(family: *mut Family);
    pub fn rocksdb_close(db: *mut Database);

    pub fn rocksdb_options_create() -> *mut Options;
    pub fn rocksdb_options_destroy(options: *mut Options);
    pub fn rocksdb_options_set_create_if_missing(options: *mut Options, value: c_uchar);
    pub fn rocksdb_options_set_create_missing_column_families(options: *mut Options, value: c_uchar);
    pub fn rocksdb_options_set_max_background_jobs(options: *mut Options, value: c_int);
    pub fn rocksdb_options_set_bytes_per_sync(options: *mut Options, value: u64);
    pub fn rocksdb_options_set_enable_pipelined_write(options: *mut Options, value: c_uchar);
    pub fn rocksdb_options_set_recycle_log_file_num(options: *mut Options, value: usize);
    pub fn rocksdb_options_set_write_buffer_size(options: *mut Options, value: usize);
    pub fn rocksdb_options_set_max_write_buffer_number(options: *mut Options, value: c_int);
    pub fn rocksdb_options_set_level_compaction_dynamic_level_bytes(options: *mut Options, value: c_uchar);
    pub fn rocksdb_options_set_compression(options: *mut Options, value: c_int);
    pub fn rocksdb_options_set_bottommost_compression(options: *mut Options, value: c_int);
    pub fn rocksdb_options_set_memtable_prefix_bloom_size_ratio(options: *mut Options, value: c_double);
    pub fn rocksdb_options_set_memtable_whole_key_filtering(options: *mut Options, value: c_uchar);
    pub fn rocksdb_options_set_block_based_table_factory(options: *mut Options, table: *mut TableOptions);

    pub fn rocksdb_block_based_options_create() -> *mut TableOptions;
    pub fn rocksdb_block_based_options_destroy(table: *mut TableOptions);
    pub fn rocksdb_block_based_options_set_block_size(table: *mut TableOptions, value: usize);
    pub fn rocksdb_block_based_options_set_format_version(table: *mut TableOptions, value: c_int);
    pub fn rocksdb_block_based_options_set_block_cache(table: *mut TableOptions, cache: *mut Cache);
    pub fn rocksdb_block_based_options_set_filter_policy(table: *mut TableOptions, policy: *mut FilterPolicy);
    pub fn rocksdb_block_based_options_set_data_block_index_type(table: *mut TableOptions, value: c_int);
    pub fn rocksdb_filterpolicy_create_bloom_full(bits_per_key: c_double) -> *mut FilterPolicy;
    pub fn rocksdb_cache_create_lru(capacity: usize) -> *mut Cache;
    pub fn rocksdb_cache_destroy(cache: *mut Cache);

    pub fn rocksdb_writebatch_create() -> *mut WriteBatch;
    pub fn rocksdb_writebatch_destroy(batch: *mut WriteBatch);
    pub fn rocksdb_writebatch_put_cf(
        batch: *mut WriteBatch,
        family: *mut Family,
        key: *const c_char,
        klen: usize,
        value: *const c_char,
        vlen: usize,
    );
    pub fn rocksdb_writebatch_delete_cf(
        batch: *mut WriteBatch,
        family: *mut Family,
        key: *const c_char,
        klen: usize,
    );
    pub fn rocksdb_writeoptions_create() -> *mut WriteOptions;
    pub fn rocksdb_writeoptions_destroy(options: *mut WriteOptions);
    pub fn rocksdb_writeoptions_set_sync(options: *mut WriteOptions, value: c_uchar);
    pub fn rocksdb_write(
        db: *mut Database,
        options: *const WriteOptions,
        batch: *mut WriteBatch,
        errptr: *mut *mut c_char,
    );

    pub fn rocksdb_readoptions_create() -> *mut ReadOptions;
    pub fn rocksdb_readoptions_destroy(options: *mut ReadOptions);
    pub fn rocksdb_readoptions_set_iterate_upper_bound(
        options: *mut ReadOptions,
        key: *const c_char,
        keylen: usize,
    );
    pub fn rocksdb_get_pinned_cf(
        db: *mut Database,
        options: *const ReadOptions,
        family: *mut Family,
        key: *const c_char,
        keylen: usize,
        errptr: *mut *mut c_char,
    ) -> *mut PinnableSlice;
    pub fn rocksdb_batched_multi_get_cf(
        db: *mut Database,
        options: *const ReadOptions,
        family: *mut Family,
        num_keys: usize,
        keys_list: *const *const c_char,
        keys_list_sizes: *const usize,
        values: *mut *mut PinnableSlice,
        errs: *mut *mut c_char,
        sorted_input: bool,
    );
    pub fn rocksdb_pinnableslice_value(slice: *const PinnableSlice, vlen: *mut usize) -> *const c_char;
    pub fn rocksdb_pinnableslice_destroy(slice: *mut PinnableSlice);

    pub fn rocksdb_create_iterator_cf(
        db: *mut Database,
        options: *const ReadOptions,
        family: *mut Family,
    ) -> *mut RawIterator;
    pub fn rocksdb_iter_destroy(iterator: *mut RawIterator);
    pub fn rocksdb_iter_seek(iterator: *mut RawIterator, key: *const c_char, klen: usize);
    pub fn rocksdb_iter_next(iterator: *mut RawIterator);
    pub fn rocksdb_iter_valid(iterator: *const RawIterator) -> c_uchar;
    pub fn rocksdb_iter_key(iterator: *const RawIterator, klen: *mut usize) -> *const c_char;
    pub fn rocksdb_iter_value(iterator: *const RawIterator, vlen: *mut usize) -> *const c_char;
    pub fn rocksdb_iter_get_error(iterator: *const RawIterator, errptr: *mut *mut c_char);

    pub fn rocksdb_flushoptions_create() -> *mut FlushOptions;
    pub fn rocksdb_flushoptions_destroy(options: *mut FlushOptions);
    pub fn rocksdb_flushoptions_set_wait(options: *mut FlushOptions, value: c_uchar);
    pub fn rocksdb_flush_cf(
        db: *mut Database,
        options: *const FlushOptions,
        family: *mut Family,
        errptr: *mut *mut c_char,
    );
    pub fn rocksdb_property_int_cf(
        db: *mut Database,
        family: *mut Family,
        propname: *const c_char,
        out_val: *mut u64,
    ) -> c_int;
    pub fn rocksdb_free(pointer: *mut std::ffi::c_void);
}
