package intents_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"federator.dev/federator/pkg/intents"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/remediate"
)

// likely returns intents as a policy has them: patches that differ in names, of about 1 KB.
func likely(n int) []remediate.Intent {
	list := make([]remediate.Intent, n)
	for i := range list {
		at := policy.Ref{Member: fmt.Sprintf("fleet/eu-%d", i%40), Kind: "Deployment.apps", Namespace: fmt.Sprintf("team-%02d", i%97), Name: fmt.Sprintf("service-%05d", i*7919%100_003)}
		var containers []string
		for c := range 4 {
			containers = append(containers, fmt.Sprintf(`{"name":"c%d-%s","image":"registry.example.com/%s/%s:v1.%d.%d","resources":{"limits":{"cpu":"%dm","memory":"%dMi"}},"securityContext":{"allowPrivilegeEscalation":false}}`,
				c, at.Name, at.Namespace, at.Name, i%30, c, 50+i%900, 64+i%2000))
		}
		patch := `{"spec":{"template":{"metadata":{"annotations":{"restarted":"` + fmt.Sprintf("%016x", uint64(i)*0x9e3779b97f4a7c15) + `"}},"spec":{"containers":[` + strings.Join(containers, ",") + `]}}}}`
		list[i] = remediate.Intent{Subject: policy.Subject{Ref: at}, Remedy: policy.Remedy{Action: "patch", Target: at, Patch: json.RawMessage(patch)}}
	}
	return list
}

// taken is a response that counts what it is sent, and ends when it has all.
type taken struct {
	http.ResponseWriter

	bytes   int
	flushed func()
}

func (t *taken) Write(p []byte) (int, error) {
	t.bytes += len(p)
	return len(p), nil
}

func (t *taken) FlushError() error {
	t.flushed()
	return nil
}

// BenchmarkStream is the first batch of a process with 3,000 intents, as it is and compressed.
func BenchmarkStream(b *testing.B) {
	s, err := intents.NewSender(intents.SenderOptions{Self: "a", Epoch: "1", Protected: (&recorder{}).Protected})
	if err != nil {
		b.Fatal(err)
	}
	if err := s.SetIntents(thePolicy, remediate.RolloutSpec{}, remediate.Totals{}, likely(3000), true); err != nil {
		b.Fatal(err)
	}
	plain := 0
	for _, encoding := range []string{"", "zstd"} {
		b.Run("encoding="+cmp.Or(encoding, "none"), func(b *testing.B) {
			for b.Loop() {
				ctx, cancel := context.WithCancel(b.Context())
				r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/intents/v1/stream", nil)
				r.Header.Set("Accept-Encoding", encoding)
				to := &taken{ResponseWriter: httptest.NewRecorder(), flushed: cancel}
				s.ServeHTTP(to, r)
				b.ReportMetric(float64(to.bytes)/3000, "B/intent")
				if encoding == "" {
					plain = to.bytes
				} else if plain > 0 {
					b.ReportMetric(float64(plain)/float64(to.bytes), "plain/compressed")
				}
			}
		})
	}
}
