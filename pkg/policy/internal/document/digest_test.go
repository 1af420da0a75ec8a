package document_test

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"testing"

	"federator.dev/federator/pkg/policy/internal/document"
	"federator.dev/federator/pkg/policy/internal/mask"
	"federator.dev/federator/pkg/policy/internal/value"
	"federator.dev/federator/test/seed"
)

// digests are those of a body under all masks of a fan.
func digests(t *testing.T, f *document.Fan, body []byte, masks int) []document.Digest {
	t.Helper()
	out := make([]document.Digest, masks)
	if err := f.Digests(body, wantAll(f), out); err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	return out
}

func wantAll(f *document.Fan) []uint64 {
	wanted := make([]uint64, f.Words())
	for i := range wanted {
		wanted[i] = ^uint64(0)
	}
	return wanted
}

// altered returns a value with something of it replaced, removed, added or moved.
func altered(r *rand.Rand, v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for key, x := range v {
			switch r.IntN(8) {
			case 0:
			case 1:
				out[key] = altered(r, x)
			case 2:
				out["{"], out["}"] = x, "]"
			default:
				out[key] = x
			}
		}
		return out
	case []any:
		var out []any
		for _, x := range v {
			switch r.IntN(6) {
			case 0:
				out = append(out, altered(r, x))
			case 1:
				out = append(out, []any{x})
			case 2:
				out = append(out, x, x)
			default:
				out = append(out, x)
			}
		}
		return out
	}
	return []any{"{", "}", []any{}, map[string]any{}, nil, "[", true, 1}[r.IntN(8)]
}

// TestDigests_AreThoseOfWhatIsPruned: two bodies have one digest under a mask where they have
// one pruned body, and nowhere else.
func TestDigests_AreThoseOfWhatIsPruned(t *testing.T) {
	r := rand.New(rand.NewPCG(seed.Of(t), 1))
	bodies := corpus(t, ".jsonl", 60)
	for _, s := range samples {
		bodies = append(bodies, canonical(t, []byte(s)))
	}
	for round := range 12 {
		var masks []*mask.Mask
		for len(masks) < 70 { // more than a word has bits
			masks = append(masks, randomMask(r, decode(t, bodies[r.IntN(len(bodies))])))
		}
		if round == 0 {
			masks = []*mask.Mask{typical, mask.Whole(), {}, mask.Path(mask.Whole(), "spec"), mask.Path(&mask.Mask{}, "spec", "containers", "*", "name")}
		}
		fan := document.NewFan(masks)
		byDigest := make([]map[document.Digest]string, len(masks))
		byText := make([]map[string]document.Digest, len(masks))
		for i := range masks {
			byDigest[i], byText[i] = map[document.Digest]string{}, map[string]document.Digest{}
		}
		for range 40 {
			body := bodies[r.IntN(len(bodies))]
			for range 3 {
				out, whole := digests(t, fan, body, len(masks)), decode(t, body)
				for i, m := range masks {
					pruned := encode(t, prune(whole, m))
					if other, known := byDigest[i][out[i]]; known && other != string(pruned) {
						t.Fatalf("under %v %s and %s have one digest", m, pruned, other)
					}
					if other, known := byText[i][string(pruned)]; known && other != out[i] {
						t.Fatalf("under %v %s has two digests", m, pruned)
					}
					byDigest[i][out[i]], byText[i][string(pruned)] = string(pruned), out[i]
				}
				body = encode(t, altered(r, decode(t, body)))
			}
		}
	}
}

func TestDigests_DifferInWhatTheMaskReads(t *testing.T) {
	before := []byte(`{"metadata":{"labels":{"app":"web"},"name":"a"},"spec":{"containers":[{"image":"nginx:1.27","name":"proxy"}]},"status":{"conditions":[{"status":"True","type":"Ready"}]}}`)
	spec := mask.Path(mask.Whole(), "spec")
	for _, c := range []struct {
		name, old, new string
		m              *mask.Mask
		same           bool
	}{
		{"a heartbeat, to a policy that reads spec", `"status":"True"`, `"status":"False"`, spec, true},
		{"an image, to a policy that reads spec", "nginx:1.27", "nginx:1.28", spec, false},
		{"an image, to one that reads names of containers", "nginx:1.27", "nginx:1.28", mask.Path(mask.Whole(), "spec", "containers", "*", "name"), true},
		{"a container's name, to one that reads them", `"name":"proxy"`, `"name":"side"`, mask.Path(mask.Whole(), "spec", "containers", "*", "name"), false},
		{"a label's key, to one that reads whether there are labels", `"app"`, `"apq"`, mask.Path(&mask.Mask{}, "metadata", "labels"), true},
		{"a label's key, to one that reads keys", `"app"`, `"apq"`, mask.Path(&mask.Mask{}, "metadata", "labels", "*"), false},
	} {
		after := bytes.Replace(before, []byte(c.old), []byte(c.new), 1)
		if bytes.Equal(before, after) {
			t.Fatalf("%s: nothing was replaced", c.name)
		}
		fan := document.NewFan([]*mask.Mask{c.m})
		if same := digests(t, fan, before, 1)[0] == digests(t, fan, after, 1)[0]; same != c.same {
			t.Errorf("%s: the same digest: %t", c.name, same)
		}
	}
}

// TestDigests_OfSome are those of all.
func TestDigests_OfSome(t *testing.T) {
	r := rand.New(rand.NewPCG(seed.Of(t), 2))
	body := canonical(t, []byte(samples[len(samples)-1]))
	for range 200 {
		var masks []*mask.Mask
		for range 1 + r.IntN(100) {
			masks = append(masks, randomMask(r, decode(t, body)))
		}
		fan := document.NewFan(masks)
		all := digests(t, fan, body, len(masks))
		wanted, out := make([]uint64, fan.Words()), make([]document.Digest, len(masks))
		for i := range wanted {
			wanted[i] = r.Uint64() & r.Uint64()
		}
		if err := fan.Digests(body, wanted, out); err != nil {
			t.Fatal(err)
		}
		for i := range masks {
			if wanted[i/64]>>(i%64)&1 == 1 && out[i] != all[i] {
				t.Fatalf("%v has another digest beside fewer masks", masks[i])
			}
		}
	}
}

func isCanonical(t *testing.T, body []byte) bool {
	return json.Valid(body) && bytes.Equal(body, encode(t, decode(t, body)))
}

// FuzzDigests holds that any bytes have digests or an error, and those that are canonical the
// digests of what is pruned.
func FuzzDigests(f *testing.F) {
	masks := []*mask.Mask{mask.Whole(), {}, {Elem: mask.Whole()}, {Elem: &mask.Mask{Elem: &mask.Mask{}}}, {Fields: map[string]*mask.Mask{"a": mask.Whole(), "c": {}}}, mask.Path(mask.Whole(), "a", "*", "b")}
	fan := document.NewFan(masks)
	for _, s := range samples {
		f.Add([]byte(s), []byte(s))
	}
	f.Fuzz(func(t *testing.T, a, b []byte) {
		x, y := make([]document.Digest, len(masks)), make([]document.Digest, len(masks))
		errX, errY := fan.Digests(a, wantAll(fan), x), fan.Digests(b, wantAll(fan), y)
		if errX != nil || errY != nil || !isCanonical(t, a) || !isCanonical(t, b) {
			return
		}
		for i, m := range masks {
			p, q := encode(t, prune(decode(t, a), m)), encode(t, prune(decode(t, b), m))
			if (x[i] == y[i]) != bytes.Equal(p, q) {
				t.Fatalf("%q and %q under %v: one digest %v, one text %v", a, b, m, x[i] == y[i], bytes.Equal(p, q))
			}
		}
	})
}

// BenchmarkDigests compares with decoding the same Pods under the union of the masks, which
// says less: what differs is to be found yet.
func BenchmarkDigests(b *testing.B) {
	bodies := pods(b)
	var masks []*mask.Mask
	for _, path := range [][]string{
		{"spec", "containers", "*", "image"},
		{"spec", "containers", "*", "resources", "limits"},
		{"spec", "containers", "*", "securityContext"},
		{"spec", "hostNetwork"},
		{"metadata", "labels"},
		{"spec", "containers", "*", "name"},
	} {
		masks = append(masks, mask.Path(mask.Whole(), path...))
	}
	all := mask.Union(masks...)
	fan, out := document.NewFan(masks), make([]document.Digest, len(masks))
	for name, wanted := range map[string][]uint64{"one": {1}, "all": wantAll(fan)} {
		b.Run(name, func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				if err := fan.Digests(bodies[i%len(bodies)], wanted, out); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("decoding", func(b *testing.B) {
		var a value.Arena
		for i := 0; b.Loop(); i++ {
			a.Reset()
			if _, err := value.Decode(&a, bodies[i%len(bodies)], all); err != nil {
				b.Fatal(err)
			}
		}
	})
}
