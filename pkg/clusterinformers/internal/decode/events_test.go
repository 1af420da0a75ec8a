package decode

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
)

const frameLimit = 1 << 20

// taken is an Event that outlives the next one.
func taken(ev *Event) Event {
	out := *ev
	r := &out.Record
	r.Body = bytes.Clone(r.Body)
	r.Namespace, r.Name, r.UID = strings.Clone(r.Namespace), strings.Clone(r.Name), strings.Clone(r.UID)
	r.ResourceVersion = strings.Clone(r.ResourceVersion)
	r.Labels, r.Owners = slices.Clone(r.Labels), slices.Clone(r.Owners)
	for i := range r.Labels {
		r.Labels[i].Key, r.Labels[i].Value = strings.Clone(r.Labels[i].Key), strings.Clone(r.Labels[i].Value)
	}
	for i := range r.Owners {
		o := &r.Owners[i]
		o.APIVersion, o.Kind, o.Name, o.UID = strings.Clone(o.APIVersion), strings.Clone(o.Kind), strings.Clone(o.Name), strings.Clone(o.UID)
	}
	return out
}

// readEvents reads to the end of a watch.
func readEvents(d *Decoder, r io.Reader, limit int) ([]Event, error) {
	var out []Event
	var ev Event
	for e := d.Events(r, limit); ; {
		if err := e.Next(&ev); err != nil {
			return out, err
		}
		out = append(out, taken(&ev))
	}
}

// podEvent is the JSON of a pod's event.
func podEvent(typ watch.EventType, name, rv string) string {
	return fmt.Sprintf(`{"type":%q,"object":{"kind":"Pod","apiVersion":"v1","metadata":{"name":%q,"namespace":"shop","resourceVersion":%q}}}`, typ, name, rv)
}

func TestEvents_JSON(t *testing.T) {
	end := `{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"9","creationTimestamp":null,` +
		`"annotations":{"k8s.io/initial-events-end":"true"}},"spec":{"containers":null},"status":{}}}`
	status := `{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"too old","reason":"Expired","code":410}}`
	events := []string{
		podEvent(watch.Added, "a", "1"), podEvent(watch.Modified, "a", "2"), end,
		podEvent(watch.Deleted, "a", "10"), podEvent(watch.Bookmark, "", "11"), status,
	}
	var indented bytes.Buffer
	for _, e := range events {
		if err := json.Indent(&indented, []byte(e), "", "  "); err != nil {
			t.Fatal(err)
		}
	}
	reordered := slices.Clone(events)
	reordered[1] = `{"object":` + strings.TrimSuffix(reordered[1][len(`{"type":"MODIFIED","object":`):], "}") + `,"type":"MODIFIED"}`
	for name, text := range map[string]string{
		"one a line":            strings.Join(events, "\n") + "\n",
		"no newline at the end": strings.Join(events, "\n"),
		"blank lines, CRLF":     "\n\r\n" + strings.Join(events, "\r\n\r\n") + "\r\n",
		"several a line":        strings.Join(events[:2], "\n") + "\n" + strings.Join(events[2:], ""),
		"indented":              indented.String(),
		"members the other way": strings.Join(reordered, "\n"),
	} {
		for how, r := range map[string]io.Reader{
			"at once":     strings.NewReader(text),
			"by byte":     iotest.OneByteReader(strings.NewReader(text)),
			"end at once": iotest.DataErrReader(strings.NewReader(text)),
		} {
			t.Run(name+", "+how, func(t *testing.T) {
				got, err := readEvents(mustNew(t, podKind, JSON, Rules{}), r, frameLimit)
				if !errors.Is(err, io.EOF) {
					t.Fatal(err)
				}
				checkEvents(t, got)
			})
		}
	}
}

func checkEvents(t *testing.T, got []Event) {
	t.Helper()
	var events []string
	for _, ev := range got {
		s := string(ev.Type) + " " + ev.Record.Name + " " + ev.Record.ResourceVersion
		if ev.InitialEventsEnd {
			s += " end"
		}
		if ev.Status != nil {
			s += string(ev.Status.Reason)
		}
		if ev.Bytes == 0 {
			t.Errorf("%s is of no size", s)
		}
		events = append(events, s)
	}
	want := []string{"ADDED a 1", "MODIFIED a 2", "BOOKMARK  9 end", "DELETED a 10", "BOOKMARK  11", "ERROR  Expired"}
	if !slices.Equal(events, want) {
		t.Errorf("events\n%q\nwant\n%q", events, want)
	}
}

// frame is one frame of a watch in protobuf.
func frame(t testing.TB, typ watch.EventType, object []byte) []byte {
	t.Helper()
	we := metav1.WatchEvent{Type: string(typ), Object: runtime.RawExtension{Raw: object}}
	b, err := we.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...)
}

func TestEvents_Protobuf(t *testing.T) {
	pod := func(name, rv string, annotations map[string]string) []byte {
		p := podFixture.DeepCopy()
		p.Name, p.ResourceVersion, p.Annotations = name, rv, annotations
		return encodeProtobuf(t, podKind, p)
	}
	status := apierrors.NewResourceExpired("too old").Status()
	text := slices.Concat(
		frame(t, watch.Added, pod("a", "1", nil)), frame(t, watch.Modified, pod("a", "2", nil)),
		frame(t, watch.Bookmark, pod("", "9", map[string]string{metav1.InitialEventsAnnotationKey: "true"})),
		frame(t, watch.Deleted, pod("a", "10", nil)), frame(t, watch.Bookmark, pod("", "11", nil)),
		frame(t, watch.Error, encodeProtobuf(t, schema.GroupVersionKind{Version: "v1", Kind: "Status"}, &status)),
	)
	for how, r := range map[string]io.Reader{
		"at once":     bytes.NewReader(text),
		"by byte":     iotest.OneByteReader(bytes.NewReader(text)),
		"end at once": iotest.DataErrReader(bytes.NewReader(text)),
	} {
		t.Run(how, func(t *testing.T) {
			got, err := readEvents(mustNew(t, podKind, Protobuf, Rules{}), r, frameLimit)
			if !errors.Is(err, io.EOF) {
				t.Fatal(err)
			}
			checkEvents(t, got)
		})
	}
}

func TestEvents_EndOfAWatch(t *testing.T) {
	broken := errors.New("connection reset")
	whole := podEvent(watch.Added, "a", "1") + "\n"
	big := podEvent(watch.Added, strings.Repeat("x", 2000), "1") + "\n"
	protobufFrame := string(frame(t, watch.Added, encodeProtobuf(t, podKind, &podFixture)))
	for name, c := range map[string]struct {
		enc   Encoding
		r     io.Reader
		limit int
		n     int
		want  error
	}{
		"nothing":                   {JSON, strings.NewReader(""), frameLimit, 0, io.EOF},
		"blank":                     {JSON, strings.NewReader(" \n\n "), frameLimit, 0, io.EOF},
		"within an event":           {JSON, strings.NewReader(whole + whole[:40]), frameLimit, 1, io.ErrUnexpectedEOF},
		"reset":                     {JSON, io.MultiReader(strings.NewReader(whole+whole[:40]), iotest.ErrReader(broken)), frameLimit, 1, broken},
		"garbage":                   {JSON, strings.NewReader(whole + "<html>\n"), frameLimit, 1, ErrMalformed},
		"a type of its own":         {JSON, strings.NewReader(strings.Replace(whole, "ADDED", "ADDER", 1)), frameLimit, 0, ErrMalformed},
		"an object that is null":    {JSON, strings.NewReader(`{"type":"ADDED","object":null}`), frameLimit, 0, ErrMalformed},
		"too large":                 {JSON, strings.NewReader(whole + big), 1000, 1, ErrTooLarge},
		"too large, no newline":     {JSON, strings.NewReader(whole + big[:1500]), 1000, 1, ErrTooLarge},
		"too large, by value":       {JSON, strings.NewReader(whole + "{\n" + big[1:]), 1000, 1, ErrTooLarge},
		"endless, by value":         {JSON, io.MultiReader(strings.NewReader("{\n\"type\":\""), endless{}), 1000, 0, ErrTooLarge},
		"protobuf: nothing":         {Protobuf, strings.NewReader(""), frameLimit, 0, io.EOF},
		"protobuf: within a length": {Protobuf, strings.NewReader(protobufFrame + "\x00"), frameLimit, 1, io.ErrUnexpectedEOF},
		"protobuf: within an event": {Protobuf, strings.NewReader(protobufFrame + protobufFrame[:40]), frameLimit, 1, io.ErrUnexpectedEOF},
		"protobuf: reset":           {Protobuf, io.MultiReader(strings.NewReader(protobufFrame+protobufFrame[:40]), iotest.ErrReader(broken)), frameLimit, 1, broken},
		"protobuf: too large":       {Protobuf, strings.NewReader("\xff\xff\xff\xff"), frameLimit, 0, ErrTooLarge},
		"protobuf: garbage":         {Protobuf, strings.NewReader("\x00\x00\x00\x01\xff"), frameLimit, 0, ErrMalformed},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := readEvents(mustNew(t, podKind, c.enc, Rules{}), c.r, c.limit)
			if len(got) != c.n || !errors.Is(err, c.want) {
				t.Errorf("%d events, then %v; want %d, then %v", len(got), err, c.n, c.want)
			}
		})
	}
}

type endless struct{}

func (endless) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = 'x'
	}
	return len(b), nil
}

func TestEvents_SteadyStateDoesNotAllocate(t *testing.T) {
	for _, enc := range []Encoding{JSON, Protobuf} {
		t.Run(enc.String(), func(t *testing.T) {
			var one []byte
			if enc == Protobuf {
				one = frame(t, watch.Modified, encodeProtobuf(t, podKind, &podFixture))
			} else {
				j, err := json.Marshal(&podFixture)
				if err != nil {
					t.Fatal(err)
				}
				one = append(append([]byte(`{"type":"MODIFIED","object":`), j...), "}\n"...)
			}
			e := mustNew(t, podKind, enc, Rules{}).Events(&repeat{one: one}, frameLimit)
			var ev Event
			n := testing.AllocsPerRun(1000, func() {
				if err := e.Next(&ev); err != nil {
					t.Fatal(err)
				}
			})
			if n > 1 || ev.Record.Name != podFixture.Name {
				t.Errorf("%.1f allocations per event of %q", n, ev.Record.Name)
			}
		})
	}
}

// repeat is one value, repeated for ever.
type repeat struct {
	one []byte
	at  int
}

func (r *repeat) Read(b []byte) (int, error) {
	n := copy(b, r.one[r.at:])
	r.at = (r.at + n) % len(r.one)
	return n, nil
}
