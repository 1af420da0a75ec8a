package hostile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	"golang.org/x/net/http2"
)

// frameClasses attack connections: frames that lie, windows that starve, headers that grow,
// streams that never end. Of the objects they say nothing false, but for frames-bits.
var frameClasses = []Class{
	{"frames-lengths", 4, func(rng *rand.Rand) *Attack {
		lie := one(rng, -3, -1, 1, 9, 1000, 16<<10)
		return lies(rng, func(t *Tap, f Frame) error {
			return t.Raw(f.append(nil, max(0, len(f.Payload)+lie)))
		})
	}},
	{"frames-sizes", 4, func(rng *rand.Rand) *Attack {
		kind, size := one(rng, http2.FramePing, http2.FrameRSTStream, http2.FrameSettings, http2.FrameWindowUpdate, http2.FrameGoAway, http2.FrameData), one(rng, 0, 3, 5, 7, 16<<10, 16<<10+1, 1<<20)
		if kind == http2.FrameData {
			size = 16<<10 + 1 + size
		}
		return lies(rng, func(t *Tap, f Frame) error {
			lie := Frame{Type: kind, Payload: make([]byte, size)}
			if kind == http2.FrameData || kind == http2.FrameRSTStream {
				lie.ID = f.ID
			}
			return errors.Join(t.Lie(lie), t.Send(f))
		})
	}},
	{"frames-strangers", 5, func(rng *rand.Rand) *Attack {
		kind, payload := one(rng, http2.FrameData, http2.FrameHeaders, http2.FrameRSTStream, http2.FrameWindowUpdate, http2.FrameContinuation, http2.FramePriority), []byte{0, 0, 0, 8}
		of := rng.IntN(5)
		return lies(rng, func(t *Tap, f Frame) error {
			id := []uint32{0, 1, 2, f.ID + 1000, 1<<31 - 1}[of]
			return errors.Join(t.Lie(Frame{Type: kind, Flags: http2.FlagHeadersEndHeaders, ID: id, Payload: payload}), t.Send(f))
		})
	}},
	{"frames-bits", 4, func(rng *rand.Rand) *Attack {
		l := lies(rng, func(t *Tap, f Frame) error {
			b := f.append(nil, len(f.Payload))
			b[t.rng.IntN(frameHead)] ^= 1 << t.rng.IntN(8)
			return t.Raw(b)
		})
		l.Exact = false
		return l
	}},
	{"frames-order", 3, func(rng *rand.Rand) *Attack {
		kind := one(rng, http2.FrameHeaders, http2.FrameData)
		return lies(rng, func(t *Tap, f Frame) error { // twice, what has ended included
			if f.Type != kind {
				return t.Send(f)
			}
			return errors.Join(t.Send(f), t.Lie(f))
		})
	}},
	{"settings-lie", 4, func(rng *rand.Rand) *Attack {
		setting := one(rng,
			http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 0}, http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 1},
			http2.Setting{ID: http2.SettingMaxFrameSize, Val: 1}, http2.Setting{ID: http2.SettingMaxFrameSize, Val: 1<<32 - 1},
			http2.Setting{ID: http2.SettingHeaderTableSize, Val: 1<<32 - 1}, http2.Setting{ID: http2.SettingHeaderTableSize, Val: 0},
			http2.Setting{ID: http2.SettingMaxHeaderListSize, Val: 0}, http2.Setting{ID: http2.SettingEnablePush, Val: 2}, http2.Setting{ID: 0x99, Val: 1})
		return lies(rng, func(t *Tap, f Frame) error { return errors.Join(t.Lie(settings(setting)), t.Send(f)) })
	}},
	{"goaway", 5, func(rng *rand.Rand) *Attack {
		last, code, more := one[uint32](rng, 0, 1, 2, 100, 1<<31-1), one(rng, http2.ErrCodeNo, http2.ErrCodeProtocol, http2.ErrCodeEnhanceYourCalm, http2.ErrCode(0xdead)), one(rng, 0, 10_000)
		return lies(rng, func(t *Tap, f Frame) error {
			text := bytes.Repeat([]byte(RawError), more/len(RawError))
			return errors.Join(t.Lie(Frame{Type: http2.FrameGoAway, Payload: append(numbers(last, uint32(code)), text...)}), t.Send(f))
		})
	}},
	{"pushes", 2, func(rng *rand.Rand) *Attack {
		return lies(rng, func(t *Tap, f Frame) error {
			return errors.Join(t.Lie(Frame{Type: http2.FramePushPromise, Flags: http2.FlagPushPromiseEndHeaders, ID: f.ID, Payload: append(numbers(2), 0x82, 0x84, 0x87)}), t.Send(f))
		})
	}},
	{"resets", 4, func(rng *rand.Rand) *Attack {
		code := one(rng, http2.ErrCodeNo, http2.ErrCodeRefusedStream, http2.ErrCodeCancel, http2.ErrCodeFlowControl, http2.ErrCode(0xdead))
		return lies(rng, func(t *Tap, f Frame) error {
			if f.ID == 0 {
				return t.Send(f)
			}
			return errors.Join(t.Lie(Frame{Type: http2.FrameRSTStream, ID: f.ID, Payload: numbers(uint32(code))}), t.Send(f))
		})
	}},

	{"windows-overflow", 4, func(rng *rand.Rand) *Attack {
		by, whole := one[uint32](rng, 0, 1<<31-1), rng.IntN(2) == 0
		return lies(rng, func(t *Tap, f Frame) error {
			lie := Frame{Type: http2.FrameWindowUpdate, ID: f.ID, Payload: numbers(by)}
			if whole {
				lie.ID = 0
			}
			return errors.Join(t.Lie(lie, lie), t.Send(f))
		})
	}},
	{"windows-jump", 3, func(rng *rand.Rand) *Attack {
		return lies(rng, func(t *Tap, f Frame) error {
			size := one[uint32](t.rng, 0, 1, 65535, 1<<31-1, 1<<31)
			return errors.Join(t.Lie(settings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: size})), t.Send(f))
		})
	}},
	// No request with a body gets through: what is only read is read all the same.
	{"windows-none", 3, func(*rand.Rand) *Attack {
		return &Attack{Exact: true, Complete: true, Back: true, Frame: func(t *Tap, f Frame) error {
			if f.Type == http2.FrameWindowUpdate {
				return nil
			}
			if t.frames > 1 {
				return t.Send(f)
			}
			return errors.Join(t.Send(f), t.Lie(settings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})))
		}}
	}},
	{"unread", 4, func(*rand.Rand) *Attack { return &Attack{Unread: true, Exact: true} }},
	{"silent", 4, func(rng *rand.Rand) *Attack {
		after := rng.IntN(60)
		return &Attack{Exact: true, Frame: func(t *Tap, f Frame) error {
			if t.frames <= after {
				return t.Send(f)
			}
			return t.Lie() // nothing
		}}
	}},

	{"headers-many", 4, func(rng *rand.Rand) *Attack {
		fields, size := one(rng, 1, 200, 5000), 70<<10+rng.IntN(2<<20)
		return &Attack{Exact: true, Answer: func(w http.ResponseWriter, _ *http.Request, _ *Call) bool {
			for i := range fields {
				w.Header().Set(fmt.Sprintf("X-Grown-%d", i), strings.Repeat("x", size/fields))
			}
			return false
		}}
	}},
	{"headers-without-end", 4, func(rng *rand.Rand) *Attack {
		more := one(rng, nil, literal("x-more", strings.Repeat("x", 1000)), literal("x", ""))
		return lies(rng, func(t *Tap, f Frame) error {
			if f.Type != http2.FrameHeaders {
				return t.Send(f)
			}
			f.Flags &^= http2.FlagHeadersEndHeaders
			return errors.Join(t.Lie(f), t.Flood(Frame{Type: http2.FrameContinuation, ID: f.ID, Payload: more}))
		})
	}},
	{"headers-table", 4, func(rng *rand.Rand) *Attack {
		block := one(rng,
			[]byte{0x3f, 0xe1, 0xff, 0xff, 0x03},             // a table of 64 MiB
			[]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f}, // a field beyond it
			[]byte{0xbe}, // one that is not there
			[]byte{0x00, 0xff, 0xff, 0xff, 0xff, 0x07}, // a name without end
			bomb(),
		)
		return lies(rng, func(t *Tap, f Frame) error {
			if f.Type != http2.FrameHeaders {
				return t.Send(f)
			}
			return errors.Join(t.Lie(Frame{Type: http2.FrameHeaders, Flags: http2.FlagHeadersEndHeaders, ID: f.ID, Payload: block}), t.Send(f))
		})
	}},
	{"headers-again", 3, func(rng *rand.Rand) *Attack {
		block := one(rng, literal(":status", "200"), literal("x-trailer", "1"), literal("Upper", "1"))
		return lies(rng, func(t *Tap, f Frame) error {
			if f.Type != http2.FrameData {
				return t.Send(f)
			}
			return errors.Join(t.Send(f), t.Lie(Frame{Type: http2.FrameHeaders, Flags: http2.FlagHeadersEndHeaders, ID: f.ID, Payload: block}))
		})
	}},

	{"early-responses", 3, func(rng *rand.Rand) *Attack {
		return lies(rng, func(t *Tap, f Frame) error {
			if f.Type != http2.FrameHeaders {
				return t.Send(f)
			}
			return errors.Join(t.Flood(Frame{Type: http2.FrameHeaders, Flags: http2.FlagHeadersEndHeaders, ID: f.ID, Payload: literal(":status", "103")}), t.Send(f))
		})
	}},
	{"empty-data", 3, func(rng *rand.Rand) *Attack {
		flags, payload := http2.Flags(0), []byte(nil)
		if rng.IntN(2) == 0 { // all of it padding
			flags, payload = http2.FlagDataPadded, append([]byte{255}, make([]byte, 255)...)
		}
		return lies(rng, func(t *Tap, f Frame) error {
			if f.Type != http2.FrameData {
				return t.Send(f)
			}
			return errors.Join(t.Flood(Frame{Type: http2.FrameData, Flags: flags, ID: f.ID, Payload: payload}), t.Send(f))
		})
	}},
	{"control-floods", 5, func(rng *rand.Rand) *Attack {
		lie := one(rng,
			Frame{Type: http2.FramePing, Payload: make([]byte, 8)}, Frame{Type: http2.FramePing, Flags: http2.FlagPingAck, Payload: make([]byte, 8)},
			settings(), Frame{Type: http2.FrameSettings, Flags: http2.FlagSettingsAck}, Frame{Type: http2.FrameWindowUpdate, Payload: numbers(1)},
			Frame{Type: http2.FrameRSTStream, ID: 1, Payload: numbers(8)}, Frame{Type: http2.FrameGoAway, Payload: numbers(1<<31-1, 0)},
			Frame{Type: http2.FramePriority, ID: 1, Payload: make([]byte, 5)}, Frame{Type: 0x99, Payload: make([]byte, 100)})
		return lies(rng, func(t *Tap, f Frame) error { return errors.Join(t.Flood(lie), t.Send(f)) })
	}},
	{"data-crumbs", 3, func(*rand.Rand) *Attack {
		return &Attack{Exact: true, Frame: func(t *Tap, f Frame) error {
			if f.Type != http2.FrameData || len(f.Payload) < 2 || len(f.Payload) > 2000 || f.Flags&http2.FlagDataPadded != 0 {
				return t.Send(f)
			}
			for i := range len(f.Payload) - 1 {
				if err := t.Lie(Frame{Type: f.Type, ID: f.ID, Payload: f.Payload[i : i+1]}); err != nil {
					return err
				}
			}
			f.Payload = f.Payload[len(f.Payload)-1:]
			return t.Send(f)
		}}
	}},
	{"bodies-trickle", 4, func(rng *rand.Rand) *Attack {
		verb, pause := one(rng, List, WatchList, Discovery), time.Duration(1+rng.IntN(50))*time.Millisecond
		return &Attack{Exact: true, Answer: answer(verb, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			drip(w, r, pause)
		})}
	}},
	{"watches-say-nothing", 4, func(rng *rand.Rand) *Attack {
		verb := one(rng, Watch, WatchList)
		return &Attack{Exact: true, Answer: answer(verb, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", r.Header.Get("Accept"))
			_ = http.NewResponseController(w).Flush() // the client may be gone
			<-r.Context().Done()
			panic(http.ErrAbortHandler)
		})}
	}},
}

// lies attacks one of so many frames, once the connection has been of use.
func lies(rng *rand.Rand, lie func(*Tap, Frame) error) *Attack {
	after, every := one(rng, 0, 10, 40), 1+rng.IntN(10)
	return &Attack{Exact: true, Frame: func(t *Tap, f Frame) error {
		if t.frames <= after || t.rng.IntN(every) > 0 {
			return t.Send(f)
		}
		t.attack()
		return lie(t, f)
	}}
}

func numbers(all ...uint32) (b []byte) {
	for _, n := range all {
		b = binary.BigEndian.AppendUint32(b, n)
	}
	return b
}

func settings(all ...http2.Setting) Frame {
	f := Frame{Type: http2.FrameSettings}
	for _, s := range all {
		f.Payload = binary.BigEndian.AppendUint16(f.Payload, uint16(s.ID))
		f.Payload = binary.BigEndian.AppendUint32(f.Payload, s.Val)
	}
	return f
}

// literal is a header field that leaves the table of compression as it is.
func literal(name, value string) []byte {
	b := append([]byte{0}, length(len(name))...)
	b = append(append(b, name...), length(len(value))...)
	return append(b, value...)
}

// length is an integer with a prefix of seven bits.
func length(n int) []byte {
	if n < 127 {
		return []byte{byte(n)}
	}
	b := []byte{127}
	for n -= 127; n >= 128; n >>= 7 {
		b = append(b, byte(n)|128)
	}
	return append(b, byte(n))
}

// bomb is a field as large as the table, and thousands of references to it.
func bomb() []byte {
	b := literal("x-bomb", strings.Repeat("b", 4000))
	b[0] = 0x40 // into the table
	return append(b, bytes.Repeat([]byte{0xbe}, 12<<10)...)
}

// drip writes a body that begins and goes on without end, a byte at a time.
func drip(w http.ResponseWriter, r *http.Request, pause time.Duration) {
	tick := time.NewTicker(pause)
	defer tick.Stop()
	_, err := io.WriteString(w, `{"kind":"List","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[`)
	for err == nil {
		_ = http.NewResponseController(w).Flush() // the next write reports it
		select {
		case <-tick.C:
			_, err = io.WriteString(w, " ")
		case <-r.Context().Done():
			err = r.Context().Err()
		}
	}
	panic(http.ErrAbortHandler)
}
