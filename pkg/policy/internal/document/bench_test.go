package document_test

import (
	"bytes"
	"encoding/json"
	"slices"
	"testing"

	"github.com/open-policy-agent/opa/v1/ast"

	"federator.dev/federator/pkg/policy/internal/document"
	"federator.dev/federator/pkg/policy/internal/mask"
)

// typical is what a set of usual Pod policies reads together.
var typical = mask.Union(
	mask.Path(mask.Whole(), "metadata", "name"),
	mask.Path(mask.Whole(), "metadata", "labels"),
	mask.Path(mask.Whole(), "spec", "containers", "*", "image"),
	mask.Path(mask.Whole(), "spec", "containers", "*", "name"),
	mask.Path(mask.Whole(), "spec", "containers", "*", "resources", "limits"),
	mask.Path(mask.Whole(), "spec", "containers", "*", "securityContext"),
	mask.Path(mask.Whole(), "spec", "initContainers", "*", "image"),
	mask.Path(mask.Whole(), "spec", "hostNetwork"),
)

// pods returns bodies of Pods around the median of 4 kB.
func pods(tb testing.TB) [][]byte {
	tb.Helper()
	all := corpus(tb, "core_Pod.jsonl", 1000)
	all = slices.DeleteFunc(all, func(b []byte) bool { return len(b) < 3500 || len(b) > 5000 })
	if len(all) == 0 {
		tb.Skip("no corpus of real objects beside the repository")
	}
	return all
}

// BenchmarkValue compares on the same Pods what stands between stored bytes and
// an input that OPA evaluates; each row is one gain by itself.
func BenchmarkValue(b *testing.B) {
	bodies := pods(b)
	size := 0
	for _, body := range bodies {
		size += len(body)
	}
	for _, c := range []struct {
		name string
		run  func(body []byte) error
	}{
		{"map", func(body []byte) error {
			d := json.NewDecoder(bytes.NewReader(body))
			d.UseNumber()
			var v any
			if err := d.Decode(&v); err != nil {
				return err
			}
			_, err := ast.InterfaceToValue(v)
			return err
		}},
		{"reader", func(body []byte) error {
			_, err := ast.ValueFromReader(bytes.NewReader(body))
			return err
		}},
		{"whole", func(body []byte) error {
			_, err := document.Value(body, mask.Whole())
			return err
		}},
		{"typical", func(body []byte) error {
			_, err := document.Value(body, typical)
			return err
		}},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(size / len(bodies)))
			for i := 0; b.Loop(); i++ {
				if err := c.run(bodies[i%len(bodies)]); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
