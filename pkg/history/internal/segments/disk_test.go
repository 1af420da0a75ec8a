package segments

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"federator.dev/federator/internal/dirlock"
	"federator.dev/federator/internal/frames"
)

// limitFiles has no file of this process grow beyond some bytes, until the function is called that it
// returns. That is how a full disk is to a write: some of it is taken.
func limitFiles(t *testing.T, most uint64) (restore func()) {
	t.Helper()
	var before syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &before); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: most, Max: before.Max}); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &before); err != nil {
			t.Error(err)
		}
	}
}

// TestAppend_DiskFull: what was not written whole is not there, also after a restart; what comes once
// there is room goes on.
func TestAppend_DiskFull(t *testing.T) {
	for _, key := range [][]byte{nil, bytes.Repeat([]byte{7}, 32)} {
		m := newModel(t, 1, Options{Key: key, Boot: "boot"})
		m.append(20)
		for round := range 3 {
			restore := limitFiles(t, uint64(30+round*10)<<10)
			var err error
			for err == nil {
				batch := make([]Entry, 40)
				for i := range batch {
					batch[i] = Entry{Kind: "Pod", Name: "web", Payload: bytes.Repeat([]byte{'x'}, 100)}
				}
				var last uint64
				last, err = m.log.Append(batch)
				if err == nil {
					m.all = append(m.all, batch...)
					if len(m.all) > 10_000 {
						err = errors.New("the limit does not hold")
					}
					continue
				}
				if !errors.Is(err, ErrFull) || last != m.all[len(m.all)-1].Position || batch[0].Position != 0 {
					restore()
					t.Fatalf("%v, the last is %d, the batch is at %d", err, last, batch[0].Position)
				}
			}
			restore()
			m.check("the disk is full")
			if round == 1 {
				m.log.die()
				m.open()
				m.check("restarted")
			}
			m.append(30)
			if g := m.log.Gaps(); len(g) > 0 {
				t.Errorf("gaps %+v", g)
			}
			m.check("there is room again")
		}
		m.log.die()
		m.open()
		m.sealAll()
		m.check("restarted and sealed")
	}
}

// TestSeal_DiskFull: a segment that cannot be sealed stays as it is, which is said, until it can be.
func TestSeal_DiskFull(t *testing.T) {
	m := newModel(t, 1, Options{SegmentBytes: minSegmentBytes})
	for m.log.Status().Unsealed == 0 {
		m.append(20)
	}
	restore := limitFiles(t, 100)
	m.sealAll()
	restore()
	if st := m.log.Status(); st.Unsealed == 0 || !errors.Is(st.Problem, syscall.EFBIG) {
		t.Errorf("%+v", st)
	}
	m.check("not sealed")
	m.sealAll()
	if st := m.log.Status(); st.Unsealed != 0 || st.Problem != nil {
		t.Errorf("%+v", st)
	}
	m.check("sealed")
	if left, _ := filepath.Glob(filepath.Join(m.opts.Directory, "*"+temporarySuffix)); len(left) > 0 {
		t.Errorf("%v are left", left)
	}
}

// TestSeal_OfADamagedSegment: what can be read of it is read, and the rest told of.
func TestSeal_OfADamagedSegment(t *testing.T) {
	m := newModel(t, 1, Options{SegmentBytes: minSegmentBytes})
	for m.log.Status().Unsealed == 0 {
		m.append(20)
	}
	m.append(20)
	s := m.log.segments[0]
	f, err := os.OpenFile(s.path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	c := s.chunks[len(s.chunks)/2]
	if _, err := f.WriteAt([]byte{1, 2, 3}, c.offset+50); err != nil {
		t.Fatal(err)
	}
	m.sealAll()
	m.sealAll()
	if st := m.log.Status(); st.Unsealed != 1 || st.Problem != nil {
		t.Errorf("%+v", st)
	}
	holds(t, "damaged", m.log, m.all)
	if got, _ := read(t, m.log, Query{}); len(got) != len(m.all)-int(c.last-c.first+1) {
		t.Errorf("%d entries of %d are read, %d are damaged", len(got), len(m.all), c.last-c.first+1)
	}
}

// TestOptions_AreHeld sets each option from outside.
func TestOptions_AreHeld(t *testing.T) {
	for _, bad := range []Options{
		{},
		{Directory: "d", Key: make([]byte, 15)},
		{Directory: "d", MaxBytes: -1},
		{Directory: "d", MaxAge: -1},
		{Directory: "d", SegmentBytes: -1},
		{Directory: "d", SegmentBytes: minSegmentBytes - 1},
		{Directory: "d", SegmentBytes: maxSegmentBytes + 1},
		{Directory: "d", MaxBytes: 200 << 10},
	} {
		bad.Directory = strings.ReplaceAll(bad.Directory, "d", filepath.Join(t.TempDir(), "d"))
		if l, err := Open(bad); err == nil {
			t.Errorf("%+v is taken", bad)
			l.Close()
		}
	}
	var out bytes.Buffer
	now := time.Date(2026, 1, 1, 0, 0, 0, 123_456_789, time.UTC)
	opts := Options{
		Directory: t.TempDir() + "/a/b", Key: make([]byte, 16), Boot: "one", MaxBytes: 4 * minSegmentBytes, MaxAge: time.Hour, SegmentBytes: minSegmentBytes,
		Now: func() time.Time { return now }, Log: slog.New(slog.NewTextHandler(&out, nil)),
	}
	l, err := Open(opts)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(opts); !errors.Is(err, dirlock.ErrLocked) {
		t.Errorf("opened twice: %v", err)
	}
	secret := []Entry{{Name: "a-secret-name", Payload: []byte("a secret payload")}}
	if _, err := l.Append(secret); err != nil || !secret[0].Time.Equal(now.Truncate(time.Millisecond)) {
		t.Errorf("at %s, %v", secret[0].Time, err)
	}
	for range 60 {
		if _, err := l.Append([]Entry{{Payload: make([]byte, 10<<10)}}); err != nil {
			t.Fatal(err)
		}
	}
	if st := l.Status(); st.Bytes > opts.MaxBytes || st.Oldest.Position == 1 || st.Segments < 3 {
		t.Errorf("%+v", st)
	}
	now = now.Add(time.Hour / 8)
	l.rotateOld()
	now = now.Add(time.Hour)
	l.expireOld()
	if got, _ := read(t, l, Query{}); len(got) != 0 || l.Status().Segments != 1 {
		t.Errorf("%d entries are older than an hour", len(got))
	}
	if _, err := l.Append(secret); err != nil || secret[0].Position != 62 {
		t.Errorf("position %d, %v", secret[0].Position, err)
	}
	files, _ := filepath.Glob(opts.Directory + "/*.log")
	for _, f := range files {
		if text, err := os.ReadFile(f); err != nil || bytes.Contains(text, []byte("secret")) {
			t.Errorf("%s is in clear: %v", f, err)
		}
	}
	l.die()
	opts.Boot = "two"
	if l, err = Open(opts); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "history is incomplete") || len(l.Gaps()) != 1 {
		t.Errorf("another boot: %q, %+v", out.String(), l.Gaps())
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

func TestLog_IsClosed(t *testing.T) {
	m := newModel(t, 1, Options{})
	m.append(1)
	c := m.log.More(1)
	if err := m.log.Close(); err != nil {
		t.Fatal(err)
	}
	<-c
	if _, err := m.log.Append([]Entry{{}}); !errors.Is(err, ErrClosed) {
		t.Errorf("Append: %v", err)
	}
	if err := m.log.Sync(); !errors.Is(err, ErrClosed) {
		t.Errorf("Sync: %v", err)
	}
	if err := m.log.Close(); !errors.Is(err, ErrClosed) {
		t.Errorf("Close: %v", err)
	}
	for _, err := range m.log.Read(Query{}) {
		if !errors.Is(err, ErrClosed) {
			t.Errorf("Read: %v", err)
		}
	}
}

func TestAppend_RefusesWhatIsTooLarge(t *testing.T) {
	m := newModel(t, 1, Options{})
	for _, batch := range [][]Entry{
		{{Name: "ok"}, {Payload: make([]byte, MaxPayload+1)}}, {{Policy: strings.Repeat("p", MaxFacet+1)}},
	} {
		if last, err := m.log.Append(batch); !errors.Is(err, ErrTooLarge) || last != 0 {
			t.Errorf("%d, %v", last, err)
		}
	}
	m.all = []Entry{{Payload: make([]byte, MaxPayload), Member: strings.Repeat("m", MaxFacet), Name: strings.Repeat("n", MaxFacet), UID: strings.Repeat("u", MaxFacet)}}
	if _, err := m.log.Append(m.all); err != nil {
		t.Fatal(err)
	}
	m.check("the largest")
	if err := m.log.rotate(); err != nil {
		t.Fatal(err)
	}
	m.sealAll()
	m.check("the largest, sealed")
	m.log.die()
	m.open()
	m.check("the largest, read again")
}

// TestAppend_ManyEmptyEntries: blocks are bounded also where entries have nothing but numbers, and
// these are long.
func TestAppend_ManyEmptyEntries(t *testing.T) {
	m := newModel(t, 1, Options{SegmentBytes: 1 << 20})
	batch := make([]Entry, 200_000)
	for i := range batch {
		if batch[i].Revision = 1 << 62; i%2 == 0 {
			batch[i].Revision = -1 << 62
		}
	}
	if _, err := m.log.Append(batch); err != nil {
		t.Fatal(err)
	}
	m.all = batch
	m.log.die()
	m.open()
	m.check("restarted")
	m.sealAll()
	m.check("sealed")
	if st := m.log.Status(); st.Segments < 3 || st.Unsealed > 0 || len(m.log.Gaps()) > 0 {
		t.Errorf("%+v", st)
	}
}

// TestAppend_FailsTwice: where neither the write is possible nor what it left can be cut off, its
// positions are not given out again, and are told as a gap.
func TestAppend_FailsTwice(t *testing.T) {
	m := newModel(t, 1, Options{Boot: "boot"})
	m.append(10)
	s := m.log.active
	readOnly, err := os.Open(s.path)
	if err != nil {
		t.Fatal(err)
	}
	s.file.Close()
	s.file, m.log.out = readOnly, frames.Continue(readOnly, nil, s.bytes)
	if last, err := m.log.Append(make([]Entry, 5)); !errors.Is(err, syscall.EBADF) || errors.Is(err, ErrFull) || last != 10 {
		t.Fatalf("%d, %v", last, err)
	}
	m.append(1)
	want := GapError{From: 11, To: 15, Entries: 5}
	for range 2 {
		if g := m.log.Gaps(); len(g) != 1 || g[0].From != want.From || g[0].To != want.To || g[0].Entries != want.Entries || !errors.Is(&g[0], ErrLost) {
			t.Errorf("%+v", g)
		}
		for _, q := range []Query{{}, {Backward: true}, {After: 12}, {Since: m.now, UID: "none"}, {Kind: "none"}} {
			if _, gaps := read(t, m.log, q); len(gaps) != 1 {
				t.Errorf("%+v has gaps %+v", q, gaps)
			}
		}
		for _, q := range []Query{{After: 15}, {Before: 11}, {Until: m.now.Add(-time.Second)}, {Since: m.now.Add(time.Second)}} {
			if _, gaps := read(t, m.log, q); len(gaps) != 0 {
				t.Errorf("%+v has gaps %+v", q, gaps)
			}
		}
		holds(t, "after two failures", m.log, append(make([]Entry, 0), m.all...))
		m.log.die()
		m.open()
		m.sealAll()
	}
}

// TestSync_Fails: what was written and not synced is not relied upon: another segment is begun.
func TestSync_Fails(t *testing.T) {
	m := newModel(t, 1, Options{Boot: "boot"})
	m.append(10)
	r, pipe, err := os.Pipe() // fails to sync
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	s := m.log.active
	file := s.file
	s.file = pipe
	if err := m.log.Sync(); !errors.Is(err, syscall.EINVAL) {
		t.Fatal(err)
	}
	s.file = file
	pipe.Close()
	if err := m.log.Sync(); err != nil {
		t.Error(err)
	}
	m.append(10)
	if st := m.log.Status(); st.Segments != 2 || st.Last.Position != 20 {
		t.Errorf("%+v", st)
	}
	m.sealAll()
	m.check("after a sync that failed")
}
