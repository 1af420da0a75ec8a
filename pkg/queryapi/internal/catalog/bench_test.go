package catalog_test

import (
	"testing"
	"time"
)

// BenchmarkPodRows prints the page that kubectl asks for: 500 real pods.
func BenchmarkPodRows(b *testing.B) {
	pods := realObjects(b, "core_Pod")
	view := viewOf(b, served("Pod", "", "v1", "pods", true), "v1")
	r, err := view.Resource("", "v1", "pods")
	ok(b, err)
	bytes := 0
	for i := range 500 {
		bytes += len(pods[i%len(pods)])
	}
	b.SetBytes(int64(bytes))
	b.ReportAllocs()
	for b.Loop() {
		for i := range 500 {
			if _, err := r.Row(pods[i%len(pods)]); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed())/float64(b.N)/float64(time.Millisecond), "ms/500rows")
}
