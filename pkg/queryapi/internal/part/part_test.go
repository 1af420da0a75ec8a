package part_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net/http"
	"runtime"
	"slices"
	"testing"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/queryapi/internal/part"
)

// TestFrames_AreReadAsTheyWereWritten, and a part that is cut anywhere is an error.
func TestFrames_AreReadAsTheyWereWritten(t *testing.T) {
	out, err := part.AppendHeader(nil, &part.Header{Epoch: 7, Revision: 8, Kind: "Pod"})
	if err != nil {
		t.Fatal(err)
	}
	at := len(out)
	out = part.AppendPosition(part.Begin(out, part.ItemFrame), aggregate.Position{Member: "a/b", Name: "n"})
	out = part.Finish(append(out, "text"...), at)
	at = len(out)
	out = part.AppendEvent(part.Begin(out, part.EventFrame), 9, []int{2, 5})
	out = part.Finish(append(out, "0123456789"...), at)
	out = part.Append(out, part.End, nil)
	r := part.NewReader(bytes.NewReader(out))
	h, err := r.Header()
	if err != nil || h.Epoch != 7 || h.Revision != 8 || h.Kind != "Pod" {
		t.Errorf("header %+v, %v", h, err)
	}
	kind, payload, err := r.Next()
	it, perr := part.ParseItem(payload)
	if err != nil || perr != nil || kind != part.ItemFrame || string(it.Member) != "a/b" || len(it.Namespace) != 0 || string(it.Name) != "n" || string(it.Text) != "text" {
		t.Errorf("%c %+v, %v, %v", kind, it, err, perr)
	}
	kind, payload, err = r.Next()
	e, perr := part.ParseEvent(payload, nil)
	if err != nil || perr != nil || kind != part.EventFrame || e.Revision != 9 || !slices.Equal(e.Marks, []int{2, 5}) || string(e.Text) != "0123456789" {
		t.Errorf("%c %+v, %v, %v", kind, e, err, perr)
	}
	if kind, _, err = r.Next(); err != nil || kind != part.End {
		t.Errorf("%c %v", kind, err)
	}
	for n := range out {
		r := part.NewReader(bytes.NewReader(out[:n]))
		for {
			kind, _, err := r.Next()
			if errors.Is(err, io.ErrUnexpectedEOF) {
				break
			}
			if err != nil || kind == part.End {
				t.Fatalf("%d bytes: %c %v", n, kind, err)
			}
		}
	}
}

// TestAsk_TravelsInAHeader, and what is none is refused.
func TestAsk_TravelsInAHeader(t *testing.T) {
	a := part.Ask{Known: part.Digest([]string{"a/b"}), Except: []string{"c/d"}, Also: []string{"e/f"}, At: 5, After: aggregate.Position{Member: "a/b"}, Digits: 9}
	h := http.Header{}
	if err := a.Set(h); err != nil {
		t.Fatal(err)
	}
	got, err := part.Parse(h)
	if err != nil || got.Known != a.Known || got.At != 5 || got.After != a.After || got.Digits != 9 {
		t.Fatalf("%+v, %v", got, err)
	}
	for _, c := range []struct {
		name string
		role aggregate.Role
		want bool
	}{
		{"a/b", aggregate.Judge, true}, {"c/d", aggregate.Judge, false}, {"a/b", aggregate.Standby, false}, {"e/f", aggregate.Standby, true}, {"e/f", aggregate.Joining, false}, {"e/f", aggregate.StandbyUnread, true},
	} {
		if is := got.Answers(&aggregate.Member{Name: c.name, Role: c.role}); is != c.want {
			t.Errorf("%s as %d: %t", c.name, c.role, is)
		}
	}
	if got, err := part.Parse(http.Header{}); got != nil || err != nil {
		t.Errorf("without a header: %+v, %v", got, err)
	}
	for _, bad := range []string{"x", "e30x", "eyJkaWdpdHMiOjE3fQ"} {
		if _, err := part.Parse(http.Header{part.AskHeader: {bad}}); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

// TestReader_MakesRoomForWhatComes: a peer that says that a frame is large, and sends none of it, costs nothing.
func TestReader_MakesRoomForWhatComes(t *testing.T) {
	const says, sends = 200 << 20, 100 << 10
	sent := binary.BigEndian.AppendUint32([]byte{byte(part.ItemFrame)}, says)
	sent = append(sent, make([]byte, sends)...)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, _, err := part.NewReader(bytes.NewReader(sent)).Next()
	runtime.ReadMemStats(&after)
	if !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Error(err)
	}
	if made := after.TotalAlloc - before.TotalAlloc; made > 10*sends {
		t.Errorf("for %d bytes that came room was made for %d", sends, made)
	}
	whole := part.Append(nil, part.ItemFrame, bytes.Repeat([]byte("0123456789"), 50_000))
	if _, payload, err := part.NewReader(bytes.NewReader(whole)).Next(); err != nil || !bytes.Equal(payload, whole[5:]) {
		t.Errorf("%d bytes, %v", len(payload), err)
	}
}
