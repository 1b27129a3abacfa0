//! The section `[otlp]`: converts it to the settings of the exporter. `config.rs` calls it at
//! start. Without an endpoint nothing is exported.

use std::path::Path;

use peeklock::otlp::{Endpoint, Headers, OtlpConfig, certificates};

use super::sections::OtlpSection;

impl OtlpSection {
    /// Converts to the settings of the exporter, if a collector is set; reads the named files. The
    /// collector gets gauges of at most `entity_count_max` entities.
    ///
    /// # Errors
    /// Returns the key and the fault.
    pub fn config(&self, entity_count_max: usize) -> Result<Option<OtlpConfig>, (String, String)> {
        let wrong = |key: &str, detail: String| (format!("otlp.{key}"), detail);
        let headers = match self.headers_file.as_str() {
            "" => Headers::default(),
            file => Headers::read(Path::new(file))
                .map_err(|error| wrong("headers_file", format!("the headers {error}")))?,
        };
        let authorities = match self.ca_file.as_str() {
            "" => Vec::new(),
            file => certificates(Path::new(file))
                .map_err(|error| wrong("ca_file", error.to_string()))?,
        };
        if self.endpoint.is_empty() {
            return Ok(None);
        }
        let endpoint = Endpoint::new(&self.endpoint, authorities)
            .map_err(|error| wrong("endpoint", format!("the endpoint {error}")))?;
        Ok(Some(OtlpConfig {
            endpoint,
            headers,
            traces: self.traces,
            metrics: self.metrics,
            sample_ratio: self.sample_ratio.0,
            interval: self.interval.to_std(),
            entity_count_max,
            service_name: self.service_name.clone(),
        }))
    }
}
