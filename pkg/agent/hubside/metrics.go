package hubside

import (
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are of all agents together: series of each would be as many as there are members.
type metrics struct {
	registry *registry
	requests *prometheus.CounterVec
	refused  *prometheus.CounterVec

	agents, connections, expiry *prometheus.Desc
}

// Reasons for which a connection is refused.
const (
	refusedBusy      = "busy"      // there are too many at once, of all or of an address
	refusedHandshake = "handshake" // it is not TLS, or not by a certificate of ours
	refusedIdentity  = "identity"  // it is not of a Member that has an agent, or has too many
)

func newMetrics(r *registry, registerer prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		registry:    r,
		requests:    prometheus.NewCounterVec(prometheus.CounterOpts{Name: "federator_agent_requests_total", Help: "Requests of agents to join, renew their certificates, or ask whether they are accepted, by the answer's code."}, []string{"request", "code"}),
		refused:     prometheus.NewCounterVec(prometheus.CounterOpts{Name: "federator_agent_refused_connections_total", Help: "Connections to the address for agents that were refused: busy (too many at once), handshake (not by TLS or a certificate of federator's), identity (not of a Member with an agent, or it has too many)."}, []string{"reason"}),
		agents:      prometheus.NewDesc("federator_agents", "Members with an agent, by whether it is connected to this process.", []string{"connected"}, nil),
		connections: prometheus.NewDesc("federator_agent_connections", "Connections of agents to this process.", nil, nil),
		expiry:      prometheus.NewDesc("federator_agent_certificate_expiry_seconds", "How long the certificate of a connected agent that expires first is valid still. None is connected: 0.", nil, nil),
	}
	for _, reason := range []string{refusedBusy, refusedHandshake, refusedIdentity} {
		m.refused.WithLabelValues(reason)
	}
	if registerer == nil {
		return m, nil
	}
	if err := registerer.Register(m); err != nil {
		return nil, fmt.Errorf("agents: metrics: %w", err)
	}
	return m, nil
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(to chan<- *prometheus.Desc) {
	m.requests.Describe(to)
	m.refused.Describe(to)
	to <- m.agents
	to <- m.connections
	to <- m.expiry
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(to chan<- prometheus.Metric) {
	m.requests.Collect(to)
	m.refused.Collect(to)
	connected, away, connections, expires := m.registry.counts()
	to <- prometheus.MustNewConstMetric(m.agents, prometheus.GaugeValue, float64(connected), "true")
	to <- prometheus.MustNewConstMetric(m.agents, prometheus.GaugeValue, float64(away), "false")
	to <- prometheus.MustNewConstMetric(m.connections, prometheus.GaugeValue, float64(connections))
	left := 0.0
	if !expires.IsZero() {
		left = time.Until(expires).Seconds()
	}
	to <- prometheus.MustNewConstMetric(m.expiry, prometheus.GaugeValue, left)
}

// counting counts the requests that a handler answers.
func (m *metrics) counting(request string, h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		answer := &coded{ResponseWriter: w, code: http.StatusOK}
		h(answer, r)
		m.requests.WithLabelValues(request, strconv.Itoa(answer.code)).Inc()
	}
}

// coded remembers the code of an answer.
type coded struct {
	http.ResponseWriter
	code int
}

// WriteHeader implements http.ResponseWriter.
func (c *coded) WriteHeader(code int) {
	c.code = code
	c.ResponseWriter.WriteHeader(code)
}

// counts returns how many members' agents are connected and are not, their connections, and when the first of their
// certificates expires; zero where none is connected.
func (r *registry) counts() (connected, away, connections int, expires time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range r.members {
		if len(m.conns) == 0 {
			away++
			continue
		}
		connected++
		if expires.IsZero() || m.expires.Before(expires) {
			expires = m.expires
		}
	}
	return connected, away, r.total, expires
}
