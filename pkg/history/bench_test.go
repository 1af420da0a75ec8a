package history

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"federator.dev/federator/pkg/aggregate"
)

// podBody is a Pod as a kubelet leaves it, of about 6 KB; nodeBody a Node of about 10 KB, most of it images.
func podBody(phase string, restarts int) []byte {
	env := strings.Repeat(`{"name":"SETTING","valueFrom":{"secretKeyRef":{"key":"password","name":"database"}}},`, 20)
	return fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Pod","metadata":{"annotations":{"checksum/config":"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"},"creationTimestamp":"2026-11-30T08:00:00Z","labels":{"app.kubernetes.io/instance":"web","app.kubernetes.io/name":"web","pod-template-hash":"5d4f8c7b9"},"name":"web","namespace":"shop","uid":"0b9e2a4e-7a3d-4f0a-9c1e-2f6d3b1a5c77"},"spec":{"containers":[{"env":[%s{"name":"LAST","value":"x"}],"image":"registry.example.com/shop/web:1.2.3","livenessProbe":{"httpGet":{"path":"/healthz","port":8080}},"name":"web","resources":{"limits":{"memory":"512Mi"},"requests":{"cpu":"100m","memory":"256Mi"}}},{"image":"registry.example.com/mesh/proxy:1.20","name":"proxy"}],"nodeName":"worker-7","tolerations":[{"effect":"NoExecute","key":"node.kubernetes.io/not-ready","operator":"Exists"}]},"status":{"conditions":[{"lastTransitionTime":"2026-11-30T08:00:05Z","status":"True","type":"Initialized"},{"lastTransitionTime":"2026-11-30T08:01:00Z","message":"containers with unready status: [web]","reason":"ContainersNotReady","status":"False","type":"Ready"}],"containerStatuses":[{"image":"registry.example.com/shop/web:1.2.3","name":"web","ready":false,"restartCount":%d,"state":{"waiting":{"reason":"CrashLoopBackOff"}}}],"phase":%q,"podIP":"10.1.2.3"}}`, env, restarts, phase)
}

func nodeBody(heartbeat int) []byte {
	var images strings.Builder
	for i := range 50 {
		fmt.Fprintf(&images, `,{"names":["registry.example.com/some/image-%d@sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08","registry.example.com/some/image-%d:1.2.%d"],"sizeBytes":%d}`, i, i, i, i*1_000_003)
	}
	return fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Node","metadata":{"labels":{"kubernetes.io/arch":"amd64","kubernetes.io/hostname":"worker-7"},"name":"worker-7","uid":"n"},"spec":{"taints":[]},"status":{"conditions":[{"lastHeartbeatTime":"2026-11-30T08:00:%02dZ","status":"False","type":"MemoryPressure"},{"lastHeartbeatTime":"2026-11-30T08:00:%02dZ","status":"True","type":"Ready"}],"images":[%s],"nodeInfo":{"kubeletVersion":"v1.36.3"}}}`, heartbeat%60, heartbeat%60, images.String()[1:])
}

// BenchmarkTaker measures what a transition costs beside the commit: decoding both objects, comparing, encoding and appending.
func BenchmarkTaker(b *testing.B) {
	for name, c := range map[string]struct {
		kind          aggregate.Kind
		before, after []byte
	}{
		"pod":       {"Pod", podBody("Running", 1), podBody("Failed", 2)},
		"heartbeat": {"Node", nodeBody(1), nodeBody(2)},
	} {
		b.Run(name, func(b *testing.B) {
			x, err := aggregate.New(aggregate.Options{Revisions: aggregate.Block(1), Hold: true})
			if err != nil {
				b.Fatal(err)
			}
			h, err := Open(Options{Directory: filepath.Join(b.TempDir(), "h")})
			if err != nil {
				b.Fatal(err)
			}
			defer h.log.Close()
			if err := h.Begin(x); err != nil {
				b.Fatal(err)
			}
			if err := x.PutMember(aggregate.Member{Name: "fleet/a", UID: "a"}); err != nil {
				b.Fatal(err)
			}
			s, err := x.OpenScopeAs("fleet/a", c.kind, "v1", "things")
			if err != nil {
				b.Fatal(err)
			}
			for i, body := range [][]byte{c.before, c.after} {
				s.Upsert(s.Item(&aggregate.Record{Name: "o", UID: "u", ResourceVersion: fmt.Sprint(i), Body: body}))
			}
			if _, err := s.Commit(); err != nil {
				b.Fatal(err)
			}
			pending, _ := x.Pending(x.Snapshot())
			commits, _ := pending.Commits()
			var changes []aggregate.Change
			for c := range commits {
				for change := range c.Changes() {
					changes = append(changes, change)
				}
			}
			change := changes[len(changes)-1]
			b.ReportAllocs()
			for b.Loop() {
				h.taker.now = h.clock.now()
				h.taker.object("a", c.kind, change)
				if len(h.taker.out) >= 100 {
					h.drain()
				}
			}
			h.drain()
		})
	}
}
