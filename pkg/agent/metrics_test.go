package agent_test

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"federator.dev/federator/pkg/agent/internal/joining"
)

// TestServer_CountsAgents: who is connected, what agents have asked for, and who was refused.
func TestServer_CountsAgents(t *testing.T) {
	j := join(t, 0)
	h := j.hub
	h.create("away")
	token := h.token(j.member, j.uid, time.Hour)
	if code, why := post(t, client(), h.address, joining.JoinPath, joining.Request{Token: token[:len(token)-1], CSR: csr(t)}); code == http.StatusOK {
		t.Fatal(why)
	}
	c, err := net.Dial("tcp", h.listening)
	ok(t, err)
	defer c.Close()
	_, err = fmt.Fprint(c, "GET / HTTP/1.1\r\n\r\n")
	ok(t, err)
	until(t, "the metrics say so", func() error {
		return testutil.GatherAndCompare(h.metrics, strings.NewReader(`# HELP federator_agent_refused_connections_total Connections to the address for agents that were refused: busy (too many at once), handshake (not by TLS or a certificate of federator's), identity (not of a Member with an agent, or it has too many).
# TYPE federator_agent_refused_connections_total counter
federator_agent_refused_connections_total{reason="busy"} 0
federator_agent_refused_connections_total{reason="handshake"} 1
federator_agent_refused_connections_total{reason="identity"} 0
# HELP federator_agents Members with an agent, by whether it is connected to this process.
# TYPE federator_agents gauge
federator_agents{connected="false"} 1
federator_agents{connected="true"} 1
`), "federator_agents", "federator_agent_refused_connections_total")
	})
	answers := map[string]float64{}
	families, err := h.metrics.Gather()
	ok(t, err)
	for _, f := range families {
		for _, m := range f.Metric {
			key := f.GetName()
			for _, l := range m.Label {
				key += " " + l.GetValue()
			}
			answers[key] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	if answers["federator_agent_requests_total 200 join"] != 1 {
		t.Errorf("joined: %v", answers)
	}
	refused := 0.0
	for key, n := range answers {
		if strings.HasPrefix(key, "federator_agent_requests_total 4") && strings.HasSuffix(key, " join") {
			refused += n
		}
	}
	if refused != 1 {
		t.Errorf("one request was refused: %v", answers)
	}
	if n := answers["federator_agent_connections"]; n < 1 {
		t.Errorf("%v connections", n)
	}
	if left := answers["federator_agent_certificate_expiry_seconds"]; left < 3600 || left > 24*3600 {
		t.Errorf("the certificate of an agent expires in %v s", left)
	}
}
