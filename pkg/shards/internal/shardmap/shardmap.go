// Package shardmap is the map of a fleet: which process holds which member, as a ConfigMap on the hub has it.
//
// The text is JSON, compressed by gzip, within what an object on the hub may have. It comes from the hub, which others than
// federator may write to: it is read within bounds, and everything that it says is checked, so that a map that is used is whole.
// What is not is an error that says where.
package shardmap

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/validation"
)

const (
	// Format is the newest format that this process reads.
	Format = 1
	// Key is that of the map in the ConfigMap's binaryData.
	Key = "map.json.gz"
	// MaxBytes bounds a compressed map: an object on the hub has 1 MiB at most, with all that is not the map.
	MaxBytes = 1<<20 - 8<<10

	maxText      = 32 << 20
	maxVersion   = 1 << 53 // JSON numbers are exact below
	maxName      = 63 + 1 + 253
	maxOpaque    = 256
	maxProcesses = 1024
)

// Map is which process holds which member. A published one is immutable.
type Map struct {
	// Version only grows.
	Version int64
	// Processes are those that live, by ID.
	Processes []Process
	// Members are by name.
	Members []Member
	Keys    Keys
}

// Process is one of those that share the fleet.
type Process struct {
	ID      string
	Epoch   uint64 // which of the processes that have had the ID
	Address string // host and port that its peers reach it by
	// Policies names which policies and bindings it evaluates, in its own words.
	Policies string
}

// Member is a member, with the IDs of those that hold it.
type Member struct {
	Name, UID string
	Judge     string // "": no process is there
	Standby   string
	// Next reads the member, to take the judge's place, or, where Aside is set, the standby's.
	Next  string
	Aside bool
	// Unready is set where the judge has not read all: the one before was lost, or there was none.
	Unready bool
}

// Keys say which processes share the keys of views, sorted. Before are those of an earlier version, which not all living
// processes have left behind: what they have the new ones may not have yet.
type Keys struct {
	Now, Before []string
	Since       int64 // the version that Now came with
}

// Process returns a living process.
func (m *Map) Process(id string) (Process, bool) {
	if m == nil {
		return Process{}, false
	}
	i, is := slices.BinarySearchFunc(m.Processes, id, func(p Process, id string) int { return strings.Compare(p.ID, id) })
	if !is {
		return Process{}, false
	}
	return m.Processes[i], true
}

// Member returns a member by its name.
func (m *Map) Member(name string) (*Member, bool) {
	if m == nil {
		return nil, false
	}
	i, is := slices.BinarySearchFunc(m.Members, name, func(m Member, name string) int { return strings.Compare(m.Name, name) })
	if !is {
		return nil, false
	}
	return &m.Members[i], true
}

// Same reports whether two maps say the same, but for their versions.
func (m *Map) Same(o *Map) bool {
	return slices.Equal(m.Processes, o.Processes) && slices.Equal(m.Members, o.Members) &&
		slices.Equal(m.Keys.Now, o.Keys.Now) && slices.Equal(m.Keys.Before, o.Keys.Before)
}

// TooLargeError is the error of a map that an object on the hub has no room for.
type TooLargeError struct {
	Members, Bytes int
}

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("the map of %d members is %d bytes, compressed, and an object on the hub has room for %d", e.Members, e.Bytes, MaxBytes)
}

// NewerError is the error of a map that a newer federator has written.
type NewerError struct{ Format int }

func (e *NewerError) Error() string {
	return fmt.Sprintf("format %d was written by a newer federator: this one reads %d", e.Format, Format)
}

// file is the map as JSON has it. Members name processes by their number.
type file struct {
	Format    int           `json:"format"`
	Version   int64         `json:"version"`
	Processes []fileProcess `json:"processes"`
	Members   []fileMember  `json:"members"`
	Keys      fileKeys      `json:"keys"`
}

type fileProcess struct {
	ID       string `json:"id"`
	Epoch    uint64 `json:"epoch"`
	Address  string `json:"address"`
	Policies string `json:"policies,omitempty"`
}

// fileMember has 1 for the first of the processes, and 0 for none.
type fileMember struct {
	Name    string `json:"n"`
	UID     string `json:"u,omitempty"`
	Judge   int    `json:"j,omitempty"`
	Standby int    `json:"s,omitempty"`
	Next    int    `json:"x,omitempty"`
	Aside   bool   `json:"a,omitempty"`
	Unready bool   `json:"r,omitempty"`
}

type fileKeys struct {
	Now    []string `json:"now"`
	Before []string `json:"before,omitempty"`
	Since  int64    `json:"since"`
}

// Encode returns the map as a ConfigMap has it.
func (m *Map) Encode() ([]byte, error) {
	f := file{Format: Format, Version: m.Version, Keys: fileKeys(m.Keys), Members: make([]fileMember, 0, len(m.Members))}
	number := map[string]int{}
	for i, p := range m.Processes {
		f.Processes = append(f.Processes, fileProcess(p))
		number[p.ID] = i + 1
	}
	for _, e := range m.Members {
		f.Members = append(f.Members, fileMember{
			Name: e.Name, UID: e.UID, Judge: number[e.Judge], Standby: number[e.Standby], Next: number[e.Next], Aside: e.Aside, Unready: e.Unready,
		})
	}
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(json.NewEncoder(z).Encode(&f), z.Close()); err != nil {
		return nil, err
	}
	if b.Len() > MaxBytes {
		return nil, &TooLargeError{Members: len(m.Members), Bytes: b.Len()}
	}
	return b.Bytes(), nil
}

// Decode reads what Encode has written.
func Decode(data []byte) (*Map, error) {
	z, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("it is not gzip: %w", err)
	}
	text, err := io.ReadAll(io.LimitReader(z, maxText+1))
	if err != nil {
		return nil, fmt.Errorf("byte %d of its text: %w", len(text), err)
	}
	if len(text) > maxText {
		return nil, fmt.Errorf("its text has more than %d bytes", maxText)
	}
	var version struct {
		Format int `json:"format"`
	}
	if err := json.Unmarshal(text, &version); err != nil {
		return nil, located(err)
	}
	if version.Format > Format {
		return nil, &NewerError{Format: version.Format}
	}
	if version.Format < 1 {
		return nil, fmt.Errorf("format: %d is none", version.Format)
	}
	var f file
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&f); err != nil {
		return nil, located(err)
	}
	return f.check()
}

// located adds where an error is.
func located(err error) error {
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax):
		return fmt.Errorf("byte %d of its text: %w", syntax.Offset, err)
	case errors.As(err, &kind):
		return fmt.Errorf("byte %d of its text: %w", kind.Offset, err)
	}
	return err
}

// check returns the map, or the first thing that is wrong with it.
func (f *file) check() (*Map, error) {
	m := &Map{Version: f.Version, Keys: Keys(f.Keys)}
	if f.Version < 1 || f.Version >= maxVersion {
		return nil, fmt.Errorf("version: %d is none", f.Version)
	}
	if len(f.Processes) > maxProcesses {
		return nil, fmt.Errorf("processes: there are %d, more than %d", len(f.Processes), maxProcesses)
	}
	for i, p := range f.Processes {
		if err := p.check(i, f.Processes); err != nil {
			return nil, fmt.Errorf("processes[%d]: %w", i, err)
		}
		m.Processes = append(m.Processes, Process(p))
	}
	m.Members = make([]Member, 0, len(f.Members))
	for i, e := range f.Members {
		if i > 0 && f.Members[i-1].Name >= e.Name {
			return nil, fmt.Errorf("members[%d]: %q is not after the one before", i, clip(e.Name))
		}
		if err := e.check(len(f.Processes)); err != nil {
			return nil, fmt.Errorf("members[%d]: %w", i, err)
		}
		id := func(n int) string {
			if n == 0 {
				return ""
			}
			return f.Processes[n-1].ID
		}
		m.Members = append(m.Members, Member{
			Name: e.Name, UID: e.UID, Judge: id(e.Judge), Standby: id(e.Standby), Next: id(e.Next), Aside: e.Aside, Unready: e.Unready,
		})
	}
	if f.Keys.Since < 0 || f.Keys.Since > f.Version {
		return nil, fmt.Errorf("keys.since: version %d is none before %d", f.Keys.Since, f.Version)
	}
	return m, errors.Join(checkIDs("keys.now", f.Keys.Now), checkIDs("keys.before", f.Keys.Before))
}

func (p *fileProcess) check(i int, all []fileProcess) error {
	if err := CheckID(p.ID); err != nil {
		return fmt.Errorf("id: %w", err)
	}
	if i > 0 && all[i-1].ID >= p.ID {
		return fmt.Errorf("id: %q is not after the one before", p.ID)
	}
	if err := CheckAddress(p.Address); err != nil {
		return fmt.Errorf("address: %w", err)
	}
	if len(p.Policies) > maxOpaque {
		return fmt.Errorf("policies: there are more than %d bytes", maxOpaque)
	}
	return nil
}

func (e *fileMember) check(processes int) error {
	if e.Name == "" || len(e.Name) > maxName || len(e.UID) > maxOpaque || !utf8.ValidString(e.Name) {
		return fmt.Errorf("%q is no member", clip(e.Name))
	}
	for _, n := range []int{e.Judge, e.Standby, e.Next} {
		if n < 0 || n > processes {
			return fmt.Errorf("%q: process %d of %d", clip(e.Name), n, processes)
		}
	}
	if e.Judge == 0 && (e.Standby != 0 || e.Next != 0) || e.Judge != 0 && (e.Judge == e.Standby || e.Judge == e.Next) || e.Standby != 0 && e.Standby == e.Next {
		return fmt.Errorf("%q: it has a process twice, or no judge among its processes", clip(e.Name))
	}
	return nil
}

func checkIDs(where string, ids []string) error {
	if len(ids) > maxProcesses {
		return fmt.Errorf("%s: there are more than %d", where, maxProcesses)
	}
	for i, id := range ids {
		if err := CheckID(id); err != nil {
			return fmt.Errorf("%s[%d]: %w", where, i, err)
		}
		if i > 0 && ids[i-1] >= id {
			return fmt.Errorf("%s[%d]: %q is not after the one before", where, i, id)
		}
	}
	return nil
}

// CheckID returns why an ID is none of a process.
func CheckID(id string) error {
	if errs := validation.IsDNS1123Label(id); len(errs) > 0 {
		return fmt.Errorf("%q: %s", clip(id), errs[0])
	}
	return nil
}

// CheckAddress returns why an address is none of a process.
func CheckAddress(address string) error {
	host, port, err := net.SplitHostPort(address)
	if err == nil && (host == "" || port == "" || strings.ContainsAny(address, "/?#@ ") || len(address) > maxOpaque) {
		err = errors.New("it is not host and port")
	}
	if err != nil {
		return fmt.Errorf("%q: %w", clip(address), err)
	}
	return nil
}

func clip(s string) string { return s[:min(len(s), maxOpaque)] }
