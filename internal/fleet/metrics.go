package fleet

import (
	"github.com/prometheus/client_golang/prometheus"

	"federator.dev/federator/pkg/aggregate"
)

// indexCollector reads one snapshot per scrape.
type indexCollector struct {
	index *aggregate.Index
}

var (
	descObjects  = prometheus.NewDesc("federator_index_objects", "Objects held.", nil, nil)
	descBytes    = prometheus.NewDesc("federator_index_bytes", "Heap bytes of the objects held, estimated.", nil, nil)
	descMembers  = prometheus.NewDesc("federator_index_members", "Members that have joined.", nil, nil)
	descScopes   = prometheus.NewDesc("federator_index_scopes", "Scopes, by state.", []string{"state"}, nil)
	descRevision = prometheus.NewDesc("federator_index_revision",
		"Changes committed since the start.", nil, nil)
)

// Describe implements prometheus.Collector.
func (c indexCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descObjects, descBytes, descMembers, descScopes, descRevision} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c indexCollector) Collect(ch chan<- prometheus.Metric) {
	snap := c.index.Snapshot()
	var objects int
	var bytes int64
	states := map[aggregate.State]int{}
	for s := range snap.Scopes("") {
		objects += s.Objects
		bytes += s.Bytes
		states[s.Status.State]++
	}
	members := 0
	for range snap.Members() {
		members++
	}
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	gauge(descObjects, float64(objects))
	gauge(descBytes, float64(bytes))
	gauge(descMembers, float64(members))
	for s := aggregate.Unknown; s <= aggregate.OverBudget; s++ {
		gauge(descScopes, float64(states[s]), s.String())
	}
	gauge(descRevision, float64(snap.Changes()))
}
