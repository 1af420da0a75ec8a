package alerts_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"federator.dev/federator/internal/cputime"
	"federator.dev/federator/pkg/notify/selection"
	"federator.dev/federator/pkg/policy"
)

// BenchmarkOpen measures the CPU time of the alerts of 100,000 verdicts with violations in 20 members.
func BenchmarkOpen(b *testing.B) {
	const perMember = 5000
	var members []string
	for i := range 20 {
		members = append(members, fmt.Sprintf("fleet/m%02d", i))
	}
	w := newWorld(b, members...)
	for _, m := range members {
		for i := range perMember {
			w.put(m, fmt.Sprintf("%s-%d", m[len("fleet/"):], i), "Failed", "OOM")
		}
	}
	s := w.judge(b)
	if n := s.Total("failed").Violations; n != len(members)*perMember {
		b.Fatalf("%d violations", n)
	}
	rules := []selection.Rule{
		{Types: []string{"Violation"}, Severities: []string{"critical"}},
		{Types: []string{"Violation"}, Policies: []string{"fail*"}, Members: policy.MemberSelector{Names: []string{"fleet/*"}}, Transitions: []string{"Opened", "Closed"}},
	}
	for name, c := range map[string]struct {
		by   []string
		text bool
	}{"policy": {[]string{"Policy"}, false}, "member": {[]string{"Policy", "Member"}, true}, "object": {[]string{"Policy", "Object"}, true}} {
		a := newAlerts(b, c.text, c.by, rules...)
		b.Run(name, func(b *testing.B) {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			begin, total := cputime.Thread(), 0
			for b.Loop() {
				total = 0
				for _, x := range a.Open(s, nil) {
					total += x.Violations
				}
			}
			if total != len(members)*perMember+1 { // one member is old
				b.Fatalf("%d violations", total)
			}
			b.ReportMetric(float64(cputime.Thread()-begin)/float64(time.Millisecond)/float64(b.N), "CPU-ms/op")
		})
	}
}
