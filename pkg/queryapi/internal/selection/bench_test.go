package selection_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"federator.dev/federator/pkg/queryapi/internal/authz"
	"federator.dev/federator/pkg/queryapi/internal/selection"
)

// BenchmarkFind looks through the corpus's pods, by a field that the index does
// not declare; per object, and beside one processor.
func BenchmarkFind(b *testing.B) {
	f := newFleet(b, nil)
	f.join("a/one")
	bytes := 0
	for i, raw := range realObjects(b)["Pod"] {
		o := decode(b, raw)
		sub(o, "metadata")["name"] = fmt.Sprint("pod-", i)
		f.put("a/one", o)
		bytes += len(canonical(b, o))
	}
	f.commit()
	stop := make(chan struct{})
	for more := true; more; {
		var err error
		if _, more, err = f.index.Train(stop); err != nil {
			b.Fatal(err)
		}
	}
	snap := f.index.Snapshot()
	for _, fields := range []string{"", "spec.containers.image=no/such:image", "spec.restartPolicy=OnFailure", "spec.containers.image!=no/such:image,status.qosClass!=x"} {
		b.Run(fields, func(b *testing.B) {
			sel, err := selection.Compile("", fields, "Pod")
			if err != nil {
				b.Fatal(err)
			}
			find := selection.Listing{Snapshot: snap, Selector: sel, Grants: authz.Everything(time.Time{})}
			all, err := find.Count(b.Context())
			if err != nil {
				b.Fatal(err)
			}
			procs := runtime.GOMAXPROCS(1)
			started, rounds := time.Now(), 0
			for ; time.Since(started) < time.Second; rounds++ {
				if _, err := find.Count(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
			alone := time.Since(started).Seconds() / float64(rounds)
			runtime.GOMAXPROCS(procs)
			for b.Loop() {
				if _, err := find.Count(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(alone/(b.Elapsed().Seconds()/float64(b.N)), "times/one-processor")
			info, _ := snap.Scope("a/one", "Pod")
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(info.Objects), "ns/object")
			b.ReportMetric(float64(bytes)/float64(info.Objects), "B/object")
			b.ReportMetric(float64(all), "found")
		})
	}
}
