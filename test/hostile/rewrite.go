package hostile

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
)

// document passes a JSON document on as the attacks change it.
func (p *Proxy) document(out io.Writer, body io.Reader, c *Call, t *activeAttacks) {
	raw, err := io.ReadAll(body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	doc, err := unmarshal(p.rename(raw))
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if items, ok := doc["items"].([]any); ok && c.Verb == List {
		doc["items"] = t.items(c, items)
	}
	for _, l := range t.attacks {
		switch {
		case c.Verb == List && l.Page != nil:
			l.Page(c, doc)
		case (c.Verb == Version || c.Verb == Discovery) && l.Document != nil:
			l.Document(c, doc)
		}
	}
	if raw, err = json.Marshal(doc); err != nil {
		panic(http.ErrAbortHandler)
	}
	_, _ = out.Write(raw) // the client may be gone
}

// items returns what a page shows.
func (t *activeAttacks) items(c *Call, items []any) []any {
	for _, item := range items {
		if o, ok := item.(map[string]any); ok {
			t.object(c, o)
		}
	}
	for _, l := range t.attacks {
		if l.Extra != nil {
			l.Extra(c, func(o map[string]any) bool {
				items = append(items, o)
				return true
			})
		}
	}
	return items
}

func (t *activeAttacks) object(c *Call, o map[string]any) {
	for _, l := range t.attacks {
		if l.Object != nil {
			l.Object(c, o)
		}
	}
}

// stream passes watch events on as the attacks change them.
func (p *Proxy) stream(ctx context.Context, w http.ResponseWriter, out io.Writer, body io.Reader, c *Call, t *activeAttacks) {
	s := &stream{proxy: p, call: c, active: t, out: bufio.NewWriterSize(out, 64<<10), flush: http.NewResponseController(w)}
	if c.Verb == WatchList {
		for _, l := range t.attacks {
			if l.Extra != nil {
				l.Extra(c, func(o map[string]any) bool { return s.send(map[string]any{"type": "ADDED", "object": o}) })
			}
		}
	}
	s.flushed()
	flooded := c.Verb == Watch // what there is has been sent
	if flooded {
		s.flood(ctx)
	}
	lines := bufio.NewReaderSize(body, 64<<10)
	for {
		line, err := lines.ReadBytes('\n')
		if len(bytes.TrimSpace(line)) > 0 {
			event, err := unmarshal(p.rename(line))
			if err != nil {
				panic(http.ErrAbortHandler)
			}
			s.event(event)
			if lines.Buffered() == 0 {
				s.flushed()
			}
			if !flooded && event["type"] == "BOOKMARK" {
				flooded = true
				s.flood(ctx)
			}
		}
		if errors.Is(err, io.EOF) {
			s.flushed()
			return
		}
		if err != nil {
			panic(http.ErrAbortHandler)
		}
	}
}

// stream is a watch under way.
type stream struct {
	proxy  *Proxy
	call   *Call
	active *activeAttacks
	out    *bufio.Writer
	flush  *http.ResponseController
}

// event sends what the attacks make of an event.
func (s *stream) event(e map[string]any) {
	if o, ok := e["object"].(map[string]any); ok && e["type"] != "BOOKMARK" && e["type"] != "ERROR" {
		s.active.object(s.call, o)
	}
	events := []map[string]any{e}
	for _, l := range s.active.attacks {
		if l.Event == nil {
			continue
		}
		var next []map[string]any
		for _, e := range events {
			next = append(next, l.Event(s.call, e)...)
		}
		events = next
	}
	for _, e := range events {
		s.send(e)
	}
}

func (s *stream) flood(ctx context.Context) {
	half := false
	for _, l := range s.active.attacks {
		s.ends(!l.Endless, func() {
			if l.Flood != nil {
				l.Flood(s.call, s.send)
				s.flushed()
			}
			if l.Half == nil || half {
				return
			}
			if b := l.Half(s.call); len(b) > 0 {
				half = true
				if _, err := s.out.Write(b); err != nil {
					panic(http.ErrAbortHandler)
				}
				s.flushed()
			}
		})
	}
	if half {
		<-ctx.Done()
		panic(http.ErrAbortHandler)
	}
}

// ends sends what comes to an end, and counts it until it has.
func (s *stream) ends(does bool, send func()) {
	if does {
		s.proxy.flooding(1)
		defer s.proxy.flooding(-1)
	}
	send()
}

// send writes an event; a client that is gone ends the request.
func (s *stream) send(e map[string]any) bool {
	raw, err := json.Marshal(e)
	if err == nil {
		_, err = s.out.Write(append(raw, '\n'))
	}
	if err != nil || s.active.ctx.Err() != nil {
		panic(http.ErrAbortHandler)
	}
	return true
}

func (s *stream) flushed() {
	if s.out.Flush() != nil || s.flush.Flush() != nil {
		panic(http.ErrAbortHandler)
	}
}

// unmarshal keeps numbers as they are written.
func unmarshal(raw []byte) (map[string]any, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var out map[string]any
	err := d.Decode(&out)
	return out, err
}
