package shardmap_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"federator.dev/federator/pkg/shards/internal/shardmap"
	"federator.dev/federator/test/seed"
)

// large returns a map of members with the names and UIDs that they have.
func large(r *rand.Rand, members, processes int, longest bool) *shardmap.Map {
	m := &shardmap.Map{Version: 1 << 40}
	for i := range processes {
		id := fmt.Sprintf("federator-%03d", i)
		m.Processes = append(m.Processes, shardmap.Process{ID: id, Epoch: r.Uint64(), Address: id + ".federator.federator.svc:9445", Policies: strings.Repeat("a", 64)})
		m.Keys.Now = append(m.Keys.Now, id)
	}
	m.Keys.Before, m.Keys.Since = m.Keys.Now[:processes/2], 7
	for i := range members {
		name := fmt.Sprintf("team-%03d/cluster-%05d", i%100, i)
		if longest {
			var text strings.Builder
			for range 20 {
				fmt.Fprintf(&text, "%016x", r.Uint64())
			}
			name = text.String()[:63] + "/" + text.String()[63:316]
		}
		at := r.Perm(processes)
		m.Members = append(m.Members, shardmap.Member{
			Name: name, UID: fmt.Sprintf("%08x-%04x-%04x-%04x-%012x", r.Uint32(), r.Uint32()&0xffff, r.Uint32()&0xffff, r.Uint32()&0xffff, r.Uint64()&0xffffffffffff),
			Judge: m.Processes[at[0]].ID, Standby: m.Processes[at[1]].ID, Unready: i%7 == 0,
		})
	}
	slices.SortFunc(m.Members, func(a, b shardmap.Member) int { return strings.Compare(a.Name, b.Name) })
	return m
}

// TestMap_OfTenThousandMembersFits, and what does not is an error that says so.
func TestMap_OfTenThousandMembersFits(t *testing.T) {
	r := rand.New(rand.NewPCG(seed.Of(t), 0))
	m := large(r, 10_000, 20, false)
	data, err := m.Encode()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("10,000 members are %d bytes, %.1f each", len(data), float64(len(data))/10_000)
	read, err := shardmap.Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(read, m) {
		t.Error("it is read as another map")
	}
	var large *shardmap.TooLargeError
	if _, err := manyLong(r).Encode(); !errors.As(err, &large) || large.Members != 8_000 {
		t.Errorf("one that is too large: %v", err)
	}
}

func manyLong(r *rand.Rand) *shardmap.Map { return large(r, 8_000, 3, true) }

// text returns the JSON of a map, compressed, after a change.
func text(t *testing.T, change func(map[string]any)) []byte {
	t.Helper()
	m := large(rand.New(rand.NewPCG(1, 1)), 5, 3, false)
	data, err := m.Encode()
	if err != nil {
		t.Fatal(err)
	}
	z, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	var all map[string]any
	d := json.NewDecoder(z)
	d.UseNumber()
	if err := d.Decode(&all); err != nil {
		t.Fatal(err)
	}
	change(all)
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if err := errors.Join(json.NewEncoder(w).Encode(all), w.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestDecode_SaysWhereAMapIsWrong.
func TestDecode_SaysWhereAMapIsWrong(t *testing.T) {
	member := func(i int, field string, value any) func(map[string]any) {
		return func(m map[string]any) { m["members"].([]any)[i].(map[string]any)[field] = value }
	}
	process := func(i int, field string, value any) func(map[string]any) {
		return func(m map[string]any) { m["processes"].([]any)[i].(map[string]any)[field] = value }
	}
	set := func(field string, value any) func(map[string]any) {
		return func(m map[string]any) { m[field] = value }
	}
	for want, change := range map[string]func(map[string]any){
		"":                                set("format", 1),
		"format 2 was written by a newer": set("format", 2),
		"format: 0":                       set("format", 0),
		"version: -1":                     set("version", -1),
		"byte ":                           set("version", "x"),
		"unknown field":                   set("other", 1),
		"members[3]:":                     member(3, "j", 4),
		"members[2]:":                     member(2, "n", "a"),
		"members[1]:":                     member(1, "j", 0),
		"members[0]:":                     member(0, "n", ""),
		"processes[1]: id":                process(1, "id", "Not A Label"),
		"processes[2]: id":                process(2, "id", "federator-000"),
		"processes[0]: address":           process(0, "address", "http://elsewhere/"),
		"keys.now[1]":                     set("keys", map[string]any{"now": []string{"b", "a"}}),
		"keys.since":                      set("keys", map[string]any{"since": 1 << 50}),
	} {
		_, err := shardmap.Decode(text(t, change))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("want %q: %v", want, err)
		}
	}
	var newer *shardmap.NewerError
	if _, err := shardmap.Decode(text(t, set("format", 7))); !errors.As(err, &newer) || newer.Format != 7 {
		t.Errorf("%v", err)
	}
}

// TestDecode_IsBounded: a small text that becomes a large one is not read.
func TestDecode_IsBounded(t *testing.T) {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	spaces := bytes.Repeat([]byte(" "), 1<<20)
	for range 40 {
		if _, err := w.Write(spaces); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := shardmap.Decode(b.Bytes()); err == nil || !strings.Contains(err.Error(), "more than") {
		t.Errorf("%d bytes: %v", b.Len(), err)
	}
}

// FuzzDecode: what is read is whole, and is written as it was read.
func FuzzDecode(f *testing.F) {
	data, err := large(rand.New(rand.NewPCG(1, 1)), 3, 3, false).Encode()
	if err != nil {
		f.Fatal(err)
	}
	z, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		f.Fatal(err)
	}
	var plain bytes.Buffer
	if _, err := plain.ReadFrom(z); err != nil {
		f.Fatal(err)
	}
	f.Add(plain.Bytes())
	f.Fuzz(func(t *testing.T, text []byte) {
		var b bytes.Buffer
		w := gzip.NewWriter(&b)
		if _, err := w.Write(text); err != nil || w.Close() != nil {
			t.Fatal(err)
		}
		m, err := shardmap.Decode(b.Bytes())
		if err != nil {
			return
		}
		for i := range m.Members {
			e := &m.Members[i]
			if found, is := m.Member(e.Name); !is || found != e {
				t.Fatalf("%q is not found", e.Name)
			}
			for _, id := range []string{e.Judge, e.Standby, e.Next} {
				if _, is := m.Process(id); !is && id != "" {
					t.Fatalf("%q is with %q, which is none", e.Name, id)
				}
			}
		}
		again, err := m.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if read, err := shardmap.Decode(again); err != nil || !read.Same(m) || read.Version != m.Version {
			t.Fatalf("it is read as another map, or not: %v", err)
		}
	})
}
