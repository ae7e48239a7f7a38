//! `--cluster COMMAND ARGUMENT …` and the options that begin with `--cluster-`.

/// What `--cluster` is to do.
#[derive(Clone, Debug, PartialEq)]
pub struct ClusterOptions {
    /// The command and its arguments.
    pub words: Vec<Vec<u8>>,
    /// `--cluster-replicas`: of each primary.
    pub replicas: usize,
    /// `--cluster-yes`: ask nothing.
    pub yes: bool,
    /// `--cluster-from`: names of nodes with commas between, or `all`; the address of the source of
    /// an import.
    pub from: Option<String>,
    /// `--cluster-from-user`: for AUTH at the source of an import.
    pub from_user: Option<String>,
    /// `--cluster-from-pass`: likewise.
    pub from_password: Option<String>,
    /// `--cluster-from-askpass`: ask for that password.
    pub from_ask_password: bool,
    /// `--cluster-to`: the name of a node.
    pub to: Option<String>,
    /// `--cluster-slots`: how many to move.
    pub slots: Option<usize>,
    /// `--cluster-weight`: the share of a node.
    pub weights: Vec<(String, f64)>,
    /// `--cluster-threshold`: percents that a node may be away from its share.
    pub threshold: f64,
    /// `--cluster-timeout`: milliseconds that a MIGRATE may take.
    pub timeout_ms: u64,
    /// `--cluster-pipeline`: keys of a MIGRATE.
    pub pipeline: usize,
    /// `--cluster-use-empty-primaries`: give slots to nodes that have none.
    pub use_empty: bool,
    /// `--cluster-simulate`: change nothing.
    pub simulate: bool,
    /// `--cluster-replace`: a key of the source replaces that of the target.
    pub replace: bool,
    /// `--cluster-copy`: an import leaves the keys where they are.
    pub copy: bool,
    /// `--cluster-search-multiple-owners`: look at each slot of each primary.
    pub search_owners: bool,
    /// `--cluster-fix-with-unreachable-primaries`: take the slots of primaries that are away.
    pub fix_unreachable: bool,
    /// `--cluster-use-atomic-slot-migration`: have the servers move slots, by jobs.
    pub use_jobs: bool,
    /// `--cluster-replica`: the new node becomes a replica.
    pub as_replica: bool,
    /// `--cluster-primary-id`: of this primary.
    pub primary: Option<String>,
    /// `--cluster-only-primaries`.
    pub only_primaries: bool,
    /// `--cluster-only-replicas`.
    pub only_replicas: bool,
}

impl Default for ClusterOptions {
    fn default() -> ClusterOptions {
        ClusterOptions {
            words: Vec::new(),
            replicas: 0,
            yes: false,
            from: None,
            from_user: None,
            from_password: None,
            from_ask_password: false,
            to: None,
            slots: None,
            weights: Vec::new(),
            threshold: 2.0,
            timeout_ms: 60_000,
            pipeline: 10,
            use_empty: false,
            simulate: false,
            replace: false,
            copy: false,
            search_owners: false,
            fix_unreachable: false,
            use_jobs: false,
            as_replica: false,
            primary: None,
            only_primaries: false,
            only_replicas: false,
        }
    }
}

impl ClusterOptions {
    /// Does what an option with its values says.
    pub fn set(&mut self, name: &str, values: &[Vec<u8>]) -> Result<(), String> {
        match name {
            "--cluster" => self.words = values.to_vec(),
            "--cluster-weight" => {
                for word in values {
                    let word = String::from_utf8_lossy(word).into_owned();
                    let pair = word.split_once('=');
                    let pair = pair.and_then(|(node, weight)| Some((node, weight.parse().ok()?)));
                    let (node, weight) = pair
                        .filter(|(_, weight): &(&str, f64)| weight.is_finite() && *weight >= 0.0)
                        .ok_or(format!("*** invalid input {word}"))?;
                    self.weights.push((node.to_owned(), weight));
                }
                if self.weights.is_empty() {
                    return Err("--cluster-weight wants NODE=WEIGHT".into());
                }
            }
            _ => match (self.switch(name), values.first()) {
                (Some(switch), _) => *switch = true,
                (None, Some(value)) => self.set_value(name, value)?,
                (None, None) => unreachable!("{name} is in the table and means nothing"),
            },
        }
        Ok(())
    }

    /// The place of an option without a value.
    fn switch(&mut self, name: &str) -> Option<&mut bool> {
        Some(match name {
            "--cluster-yes" => &mut self.yes,
            "--cluster-simulate" => &mut self.simulate,
            "--cluster-use-empty-primaries" => &mut self.use_empty,
            "--cluster-replica" => &mut self.as_replica,
            "--cluster-only-primaries" => &mut self.only_primaries,
            "--cluster-only-replicas" => &mut self.only_replicas,
            "--cluster-replace" => &mut self.replace,
            "--cluster-copy" => &mut self.copy,
            "--cluster-from-askpass" => &mut self.from_ask_password,
            "--cluster-search-multiple-owners" => &mut self.search_owners,
            "--cluster-use-atomic-slot-migration" => &mut self.use_jobs,
            "--cluster-fix-with-unreachable-primaries" => &mut self.fix_unreachable,
            _ => return None,
        })
    }

    fn set_value(&mut self, name: &str, value: &[u8]) -> Result<(), String> {
        let value = String::from_utf8_lossy(value).into_owned();
        let not_a_number = format!("{name}: '{value}' is not a number");
        let number = || value.parse().map_err(|_| not_a_number.clone());
        match name {
            "--cluster-replicas" => self.replicas = number()?,
            "--cluster-from" => self.from = Some(value),
            "--cluster-from-user" => self.from_user = Some(value),
            "--cluster-from-pass" => self.from_password = Some(value),
            "--cluster-to" => self.to = Some(value),
            "--cluster-slots" => self.slots = Some(number()?),
            "--cluster-threshold" => {
                let percent = value.parse().ok().filter(|percent: &f64| percent.is_finite());
                self.threshold = percent.ok_or(not_a_number)?;
            }
            "--cluster-timeout" => self.timeout_ms = number()? as u64,
            "--cluster-pipeline" => self.pipeline = number()?.max(1),
            "--cluster-primary-id" => self.primary = Some(value),
            _ => unreachable!("{name} is in the table and means nothing"),
        }
        Ok(())
    }
}
