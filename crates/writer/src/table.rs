//! Table of services as one host knows it, and the choice of a service for a file.

use std::collections::BTreeMap;

use exacat_wire::writer::limits::{BLOCK_BYTES, SERVICES_MAX};
use exacat_wire::writer::{ServiceId, ServiceRecord, ServiceState, Table};

/// Share of its load, in percent, that another service must be below before a stream moves there.
const MOVE_BELOW_PERCENT: u64 = 80;

/// The table. Times are of a clock that never goes back.
#[derive(Clone, Debug, Default)]
pub struct ServiceTable {
    records: BTreeMap<ServiceId, (ServiceRecord, u64)>,
}

/// Seconds of a service's present rate that its free space must hold for a new file.
const SPACE_SECONDS: u64 = 60;

/// Returns the load of a service in bytes: its queue, its rate of a second, and a block for each open file,
/// which may not have begun. The rate evens what services write while their disks keep up. Where a disk does
/// not, its queue is longer than the rate of any.
fn load(record: &ServiceRecord) -> u64 {
    let of_files = u64::from(record.open_files) * BLOCK_BYTES as u64;
    record.queued_bytes.saturating_add(record.bytes_per_second).saturating_add(of_files)
}

/// Says whether the volumes of a service are full soon: a file that begins there would end elsewhere.
fn is_full_soon(record: &ServiceRecord) -> bool {
    record.free_bytes < record.bytes_per_second.saturating_mul(SPACE_SECONDS)
}

impl ServiceTable {
    /// Takes newer records from a table.
    pub fn merge(&mut self, table: &Table, now: u64) {
        for record in &table.0 {
            if self.records.len() >= SERVICES_MAX && !self.records.contains_key(&record.service) {
                self.forget_oldest_gone();
            }
            let has_room = self.records.len() < SERVICES_MAX;
            match self.records.get_mut(&record.service) {
                Some((known, heard)) if known.version < record.version => {
                    (*known, *heard) = (record.clone(), now);
                }
                Some(_) => {}
                None if has_room => {
                    self.records.insert(record.service, (record.clone(), now));
                }
                None => {}
            }
        }
    }

    /// Makes room: a service that has been silent for longest, and is gone, is forgotten.
    fn forget_oldest_gone(&mut self) {
        let gone = self.records.iter().filter(|(_, (record, _))| record.state == ServiceState::Gone);
        if let Some(oldest) = gone.min_by_key(|(_, (_, heard))| *heard).map(|(service, _)| *service) {
            self.records.remove(&oldest);
        }
    }

    /// Marks services as gone that were not heard of for a while.
    pub fn expire(&mut self, now: u64, gone_ms: u64) {
        for (record, heard) in self.records.values_mut() {
            if now.saturating_sub(*heard) >= gone_ms {
                record.state = ServiceState::Gone;
            }
        }
    }

    /// Returns the record of a service.
    pub fn get(&self, service: ServiceId) -> Option<&ServiceRecord> {
        self.records.get(&service).map(|(record, _)| record)
    }

    /// Returns the number of services, whatever their states.
    pub(crate) fn len(&self) -> usize {
        self.records.len()
    }

    /// Returns the table to send.
    pub fn to_table(&self) -> Table {
        Table(self.records.values().map(|(record, _)| record.clone()).collect())
    }

    /// Returns the services that take files, apart from those to avoid.
    fn candidates(&self, avoid: &[ServiceId]) -> Vec<&ServiceRecord> {
        let records = self.records.values().map(|(record, _)| record);
        records.filter(|of| of.state == ServiceState::Up && !avoid.contains(&of.service)).collect()
    }

    /// Chooses a service for a new file: the less loaded of two at random. The present one stays unless
    /// the other has clearly less to do. A service that is full soon is chosen only beside another such one.
    pub fn choose(
        &self,
        random: &mut fastrand::Rng,
        present: Option<ServiceId>,
        avoid: &[ServiceId],
    ) -> Option<ServiceId> {
        let candidates = self.candidates(avoid);
        let one = random.choice(candidates.iter())?;
        let mut other = random.choice(candidates.iter())?;
        let present = candidates.iter().find(|record| Some(record.service) == present);
        if let Some(present) = present {
            let is_lighter = load(one).saturating_mul(100) < load(present).saturating_mul(MOVE_BELOW_PERCENT);
            let moves = match (is_full_soon(one), is_full_soon(present)) {
                (false, true) => true,
                (true, false) => false,
                _ => is_lighter,
            };
            return Some(if moves { one.service } else { present.service });
        }
        if one.service == other.service {
            // Two different ones, where there are two.
            other = candidates.iter().find(|record| record.service != one.service).unwrap_or(one);
        }
        let rank = |record: &ServiceRecord| (is_full_soon(record), load(record));
        Some(if rank(other) < rank(one) { other.service } else { one.service })
    }

    /// Returns the next service of the table after one, in a circle, apart from those to avoid. One that
    /// takes no files comes only if there is no other: the table may be old.
    pub fn next_after(&self, service: Option<ServiceId>, avoid: &[ServiceId]) -> Option<ServiceId> {
        let mut ids: Vec<ServiceId> = self.records.keys().copied().filter(|of| !avoid.contains(of)).collect();
        let behind = ids.partition_point(|of| service.is_some_and(|service| *of <= service));
        ids.rotate_left(behind);
        let is_up = |of: &&ServiceId| self.get(**of).is_some_and(|record| record.state == ServiceState::Up);
        ids.iter().find(is_up).or_else(|| ids.first()).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(id: u8, version: u64, queued_bytes: u64) -> ServiceRecord {
        ServiceRecord {
            service: ServiceId([id; 16]),
            version,
            address: String::new(),
            state: ServiceState::Up,
            volumes: 1,
            free_bytes: 1,
            queued_bytes,
            credit_bytes: 0,
            bytes_per_second: 0,
            open_files: 0,
            http: String::new(),
        }
    }

    /// Property: two random choices keep the loads close, and a stream stays without a clear reason.
    #[test]
    fn choice_evens_the_load_and_has_hysteresis() {
        let mut random = fastrand::Rng::with_seed(1);
        let mut loads = [0_u64; 4];
        for version in 1..2000 {
            let mut table = ServiceTable::default();
            let records = (0..4).map(|at| record(at as u8, version, loads[at] << 20)).collect();
            table.merge(&Table(records), 0);
            let chosen = table.choose(&mut random, None, &[]).unwrap();
            loads[usize::from(chosen.0[0])] += 1;
        }
        let (low, high) = (loads.iter().min().unwrap(), loads.iter().max().unwrap());
        assert!(high - low < 20, "{loads:?}");
        let mut table = ServiceTable::default();
        table.merge(&Table(vec![record(0, 1, 1000), record(1, 1, 801)]), 0);
        let present = Some(ServiceId([0; 16]));
        assert!(
            (0..50).all(|_| table.choose(&mut random, present, &[]) == present),
            "20 % less is too little"
        );
        table.merge(&Table(vec![record(1, 2, 799)]), 0);
        assert!((0..50).any(|_| table.choose(&mut random, present, &[]) != present), "now it moves");
    }

    /// Property: a service that writes more has more load, though its queue is as short. One whose volumes
    /// are full within a minute gets a file only where the others are full soon as well.
    #[test]
    fn choice_knows_rates_and_free_space() {
        let mut random = fastrand::Rng::with_seed(1);
        let of = |id, bytes_per_second, free_bytes| ServiceRecord {
            bytes_per_second,
            free_bytes,
            ..record(id, 1, 0)
        };
        let (one, two) = (ServiceId([1; 16]), ServiceId([2; 16]));
        let mut chosen = |records: Vec<ServiceRecord>, present| -> Vec<ServiceId> {
            let mut table = ServiceTable::default();
            table.merge(&Table(records), 0);
            let mut all: Vec<_> = (0..50).map(|_| table.choose(&mut random, present, &[]).unwrap()).collect();
            all.sort();
            all.dedup();
            all
        };
        let (rate, enough) = (100 << 20, (100 << 20) * SPACE_SECONDS);
        assert_eq!(chosen(vec![of(1, rate, enough), of(2, rate / 2, enough)], None), [two]);
        assert_eq!(chosen(vec![of(1, rate, enough), of(2, rate / 2, enough)], Some(one)), [one, two]);
        assert_eq!(chosen(vec![of(1, rate, enough), of(2, rate / 10 * 9, enough)], Some(one)), [one]);
        let short = rate / 2 * SPACE_SECONDS - 1;
        assert_eq!(chosen(vec![of(1, rate, enough), of(2, rate / 2, short)], None), [one]);
        assert_eq!(chosen(vec![of(1, rate, enough), of(2, rate / 2, short)], Some(two)), [one, two]);
        assert_eq!(chosen(vec![of(1, rate, enough), of(2, rate / 2, short)], Some(one)), [one]);
        assert_eq!(chosen(vec![of(1, rate, 0), of(2, rate / 2, short)], None), [two], "all are full soon");
    }

    /// Property: a full table has no room for another service, unless one is gone.
    #[test]
    fn full_table_forgets_those_that_are_gone() {
        let mut table = ServiceTable::default();
        for id in 0..SERVICES_MAX as u8 {
            table.merge(&Table(vec![record(id, 1, 0)]), u64::from(id));
        }
        table.merge(&Table(vec![record(200, 1, 0)]), 100);
        assert!(table.get(ServiceId([200; 16])).is_none(), "all others are there");
        table.expire(1002, 1000);
        table.merge(&Table(vec![record(200, 1, 0)]), 1002);
        assert!(table.get(ServiceId([200; 16])).is_some());
        assert!(table.get(ServiceId([0; 16])).is_none(), "the one that was silent for longest");
        assert!(table.get(ServiceId([1; 16])).is_some());
    }

    #[test]
    fn old_records_and_silent_services_take_no_files() {
        let mut table = ServiceTable::default();
        table.merge(&Table(vec![record(1, 5, 0), record(2, 5, 0)]), 0);
        table.merge(&Table(vec![record(1, 4, 77)]), 900);
        assert_eq!(table.get(ServiceId([1; 16])).unwrap().queued_bytes, 0, "an older record changes nothing");
        table.merge(&Table(vec![record(2, 6, 0)]), 900);
        table.expire(1000, 1000);
        let mut random = fastrand::Rng::with_seed(1);
        assert_eq!(table.choose(&mut random, None, &[]), Some(ServiceId([2; 16])));
        assert_eq!(table.choose(&mut random, None, &[ServiceId([2; 16])]), None);
        let (one, two) = (ServiceId([1; 16]), ServiceId([2; 16]));
        assert_eq!(table.next_after(Some(two), &[]), Some(two), "the silent one comes last");
        assert_eq!(table.next_after(Some(two), &[two]), Some(one));
        assert_eq!(table.next_after(Some(two), &[one, two]), None);
    }
}
