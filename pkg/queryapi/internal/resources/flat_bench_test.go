package resources

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/queryapi/internal/flat"
)

// BenchmarkFlatKeys encodes real Pods as /fleet and /flat do, without what both do
// alike before.
func BenchmarkFlatKeys(b *testing.B) {
	data, err := os.ReadFile("../../../../../shared/corpus/core_Pod.jsonl")
	if err != nil {
		b.Skip("the corpus of real objects is not here")
	}
	added := addedMetadata{member: "fleet/eu-1", version: "17", revision: 12345}
	var bodies [][]byte
	size := 0
	for line := range strings.Lines(string(data)) {
		if body, _, ok := canonical(b, []byte(line), added); ok && json.Valid(body) {
			bodies = append(bodies, body)
			size += len(body)
		}
	}
	keys := flat.NewKeys("Pod", true, func(aggregate.Kind) (namespaced, known bool) { return true, true })
	for name, flatten := range map[string]bool{"fleet": false, "flat": true} {
		b.Run(name, func(b *testing.B) {
			var s splicer
			var dst, own []byte
			b.ReportAllocs()
			b.SetBytes(int64(size / len(bodies)))
			for i := range b.N {
				body := bodies[i%len(bodies)]
				if flatten {
					own = keys.Append(own[:0], body, added.member)
					body = own
				}
				if dst, err = s.appendObject(dst[:0], body, added); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
