package exchange

import "federator.dev/federator/pkg/interest"

// Wants reports whether an importer is told of what has some keys, or has asked for it. An importer that has no stream wants
// everything: what it knows is not known. Its ID is what ExporterOptions.Peer says of its request.
func (x *Exporter) Wants(importer string, k *interest.Keys) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	follows := false
	for _, s := range x.streams {
		if s.importer != importer {
			continue
		}
		follows = true
		newest, err := s.asks.now()
		if err != nil || newest.set.Wants(k) || s.wants.set.Wants(k) {
			return true
		}
	}
	return !follows
}
