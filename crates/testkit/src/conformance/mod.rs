//! The conformance suite: every clause of the store contract, and every row of its table of
//! mutations, as tests that any store must pass.
//!
//! A test is named after its clause (`a3_…` proves A3) or its row (`create_…`, `set_record_…`). It
//! takes a [`StoreFactory`](crate::StoreFactory); [`conformance_suite!`](crate::conformance_suite)
//! makes `#[tokio::test]`s of all of them. Another test checks that every clause and row has one,
//! and that every one is in the suite (`tests/stores/memory_conformance.rs`).

use futures::future::BoxFuture;

use crate::factory::StoreFactory;

pub mod applying;
pub mod bounds;
pub mod deleting;
pub mod entries;
pub mod history;
pub mod judging;
pub mod moving;
pub mod reading;
pub mod records;
pub mod uploads;

/// Passes the list of all tests to another macro of this crate.
#[doc(hidden)]
#[macro_export]
macro_rules! conformance_list {
    ($then:ident, $($context:tt)*) => {
        $crate::$then! {
            [$($context)*]
            applying::a1_each_mutation_has_its_outcome_in_order,
            applying::a1_mutations_see_what_those_before_them_did,
            applying::a1_an_outcome_names_the_entry_and_the_change,
            applying::a1_requests_that_come_together_are_each_their_own,
            applying::a2_an_update_is_done_with_all_its_edits_or_none,
            applying::a2_readers_see_whole_mutations,
            applying::a3_of_all_that_want_a_name_one_gets_it,
            applying::a3_of_all_that_want_a_guid_or_a_record_name_one_gets_it,
            applying::a4_revisions_increase_in_the_order_of_application,
            applying::a5_what_was_answered_is_there_when_opened_again,
            applying::a6_a_request_asked_again_gets_its_answer,
            applying::a6_what_was_not_applied_is_decided_anew,
            applying::a6_answers_are_remembered_when_opened_again,
            applying::a6_an_id_used_for_another_request_is_a_conflict,
            applying::a6_a_request_is_known_until_its_id_is_too_old,
            applying::a7_after_unavailable_nothing_was_done,
            applying::a8_a_request_has_at_most_so_many_mutations,
            applying::a8_a_request_has_at_most_so_many_bytes,
            applying::a9_the_first_refusal_of_a_row_is_given,
            deleting::a10_a_copy_that_is_wanted_again_is_not_deleted,
            deleting::a10_an_update_queues_what_it_leaves_unused,
            deleting::a10_what_is_in_use_is_not_queued,
            deleting::a10_a_reservation_in_place_of_another_queues_what_it_leaves,
            deleting::a10_a_change_of_prefix_queues_nothing_in_use,
            judging::a11_a_request_judged_by_other_rights_is_refused,
            judging::a11_all_places_of_a_mutation_are_compared,
            judging::a11_versions_of_records_are_compared,
            judging::a11_a_request_does_not_outdate_itself,
            judging::a11_nothing_is_made_after_the_directory_was_closed,
            reading::r1_an_answer_is_of_one_state,
            reading::r2_what_was_answered_is_read,
            reading::r3_a_listing_gives_what_stays_once,
            reading::r3_all_pages_give_what_stays_once,
            reading::r4_children_come_in_the_order_of_bytes,
            reading::r5_counters_equal_a_scan_at_every_revision,
            reading::r5_what_is_not_there_counts_nothing,
            reading::r6_a_path_ends_found_missing_or_stopped,
            reading::r6_files_are_found_as_walks_end_at_them,
            reading::r7_an_entry_is_found_wherever_it_is,
            reading::r8_what_has_expired_is_due,
            reading::r9_reads_are_bounded,
            bounds::r9_pages_of_large_entries_end_early,
            bounds::r9_pages_of_other_items_end_early,
            bounds::r9_a_trail_of_large_changes_ends_early,
            bounds::r9_reads_of_many_large_entries_are_refused,
            reading::r3_files_of_an_se_are_all_of_them,
            reading::r3_files_of_an_se_that_move_are_not_missed,
            reading::r3_files_of_an_se_restored_meanwhile_are_not_missed,
            history::h1_every_applied_mutation_has_one_change,
            history::h2_changes_are_read_in_order_whatever_the_pages,
            history::h2_changed_returns_once_there_is_a_change,
            history::h3_the_changes_give_the_state,
            history::h4_times_never_go_back,
            history::h5_timeline_of_a_revision_stays_the_same,
            history::h6_a_trail_has_the_changes_of_one_entry,
            history::h7_traces_lead_to_what_left_a_name,
            history::n1_a_new_store_has_a_root_and_an_admin,
            history::h1_changes_say_before_and_after,
            entries::create_makes_entries_of_all_kinds,
            entries::create_is_counted,
            entries::create_refuses_what_is_not_well_formed,
            entries::create_refuses_what_is_taken,
            entries::create_refuses_unknown_storage_elements,
            entries::create_refuses_what_exceeds_a_quota,
            entries::update_edits_what_all_entries_have,
            entries::update_refuses_what_is_not_as_expected,
            entries::update_has_at_most_so_many_edits,
            entries::update_refuses_edits_of_another_kind,
            entries::update_makes_content_known_once,
            entries::update_puts_replicas,
            entries::update_drops_replicas_and_sets_their_states,
            entries::update_refuses_what_exceeds_a_quota,
            entries::update_sets_tags,
            entries::update_adds_and_removes_members,
            moving::move_takes_everything_along,
            moving::move_refuses,
            moving::move_frees_the_name,
            moving::move_and_restore_keep_to_the_depth,
            moving::remove_moves_to_the_trash,
            moving::remove_refuses,
            moving::restore_brings_everything_back,
            moving::restore_refuses,
            moving::restore_below_takes_a_part_out_of_an_item,
            moving::restore_below_refuses,
            moving::purge_ends_for_good,
            moving::purge_refuses,
            uploads::reserve_keeps_and_reserves,
            uploads::reserve_refuses,
            uploads::reserve_refuses_what_exceeds_a_quota,
            uploads::reserve_has_at_most_so_many_of_a_user,
            uploads::commit_makes_the_file_and_adds_replicas,
            uploads::commit_needs_no_room_in_a_quota,
            uploads::commit_refuses_to_make_a_file,
            uploads::commit_refuses_to_add_a_replica,
            uploads::release_gives_back_and_queues,
            uploads::dequeue_takes_off_the_queue,
            records::set_record_sets_records_of_all_kinds,
            records::set_record_refuses,
            records::drop_record_refuses_what_is_used,
            records::drop_record_takes_along_what_belongs_to_it,
        }
    };
}

/// Makes a test of each.
#[doc(hidden)]
#[macro_export]
macro_rules! conformance_instantiate {
    ([$factory:expr] $($module:ident::$name:ident),* $(,)?) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                $crate::conformance::run((stringify!($module), stringify!($name)), &$factory).await;
            }
        )*
    };
}

/// Makes a test of each, which runs only if it is asked for.
#[doc(hidden)]
#[macro_export]
macro_rules! conformance_instantiate_ignored {
    ([$factory:expr, $reason:literal] $($module:ident::$name:ident),* $(,)?) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            #[ignore = $reason]
            async fn $name() {
                $crate::conformance::run((stringify!($module), stringify!($name)), &$factory).await;
            }
        )*
    };
}

/// Makes a list of their names.
#[doc(hidden)]
#[macro_export]
macro_rules! conformance_names {
    ([] $($module:ident::$name:ident),* $(,)?) => {
        &[$((stringify!($module), stringify!($name))),*]
    };
}

/// Makes a `#[tokio::test]` of every test of the suite, on stores of the given factory. With
/// `ignore = "reason"` after it the tests are ignored unless they are asked for.
#[macro_export]
macro_rules! conformance_suite {
    ($factory:expr) => {
        $crate::conformance_list! { conformance_instantiate, $factory }
    };
    ($factory:expr, ignore = $reason:literal) => {
        $crate::conformance_list! { conformance_instantiate_ignored, $factory, $reason }
    };
}

/// Makes the future of the test of this module and name.
#[doc(hidden)]
#[macro_export]
macro_rules! conformance_future {
    ([$test:expr, $factory:expr] $($module:ident::$name:ident),* $(,)?) => {
        match $test {
            $( (stringify!($module), stringify!($name)) => Box::pin($module::$name($factory)), )*
            other => panic!("no test {other:?}"),
        }
    };
}

/// Runs the test of this module and name. Boxed, so that the compiler builds the tests here, and not
/// once more in each test program.
pub fn run<'a>(test: (&str, &str), factory: &'a dyn StoreFactory) -> BoxFuture<'a, ()> {
    crate::conformance_list! { conformance_future, test, factory }
}

/// All tests of the suite: module and name.
pub const TESTS: &[(&str, &str)] = crate::conformance_list! { conformance_names, };
