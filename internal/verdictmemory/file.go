package verdictmemory

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/cespare/xxhash/v2"

	"federator.dev/federator/pkg/policy"
)

// The file of violations is magic and records, of which the last of its binding and key holds, all numbers
// little endian:
//
//	binding    8 bytes, a digest
//	key        8 bytes, a digest
//	seconds    8 bytes, since 1970; 0: it is gone
//	CRC32C     4 bytes
const (
	magic        = "fdvseen1"
	recordBytes  = 8 + 8 + 8 + 4
	temporaryExt = ".tmp"

	maxViolations  = 1 << 23 // that are read
	maxQuarantines = 16 << 20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func digest(binding string) uint64 { return xxhash.Sum64String(binding) }

func appendRecord(b []byte, binding uint64, x policy.Seen) []byte {
	at := len(b)
	b = binary.LittleEndian.AppendUint64(b, binding)
	b = binary.LittleEndian.AppendUint64(b, x.Key)
	b = binary.LittleEndian.AppendUint64(b, uint64(x.At))
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b[at:], castagnoli))
}

var errUnsound = errors.New("it is not as it was written")

// seen is when violations were first seen, by digest of the binding and key.
type seen map[uint64]map[uint64]int64

func (s seen) set(binding uint64, x policy.Seen) {
	of := s[binding]
	switch {
	case x.At == 0:
		delete(of, x.Key)
	case of == nil:
		s[binding] = map[uint64]int64{x.Key: x.At}
	default:
		of[x.Key] = x.At
	}
}

// readSeen reads records up to the first one that is not sound: what follows that was written at the same
// time or later.
func readSeen(from io.Reader) (seen, error) {
	r := bufio.NewReaderSize(from, 1<<16)
	var head [len(magic)]byte
	if _, err := io.ReadFull(r, head[:]); err != nil || string(head[:]) != magic {
		return nil, errUnsound
	}
	out := seen{}
	var record [recordBytes]byte
	for n := 0; ; n++ {
		_, err := io.ReadFull(r, record[:])
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return out, nil
		case err != nil:
			return out, err
		case crc32.Checksum(record[:recordBytes-4], castagnoli) != binary.LittleEndian.Uint32(record[recordBytes-4:]):
			return out, errUnsound
		case n == maxViolations:
			return out, fmt.Errorf("it has more than %d records", maxViolations)
		}
		at := int64(binary.LittleEndian.Uint64(record[16:]))
		if at < 0 {
			return out, errUnsound
		}
		out.set(binary.LittleEndian.Uint64(record[:]), policy.Seen{Key: binary.LittleEndian.Uint64(record[8:]), At: at})
	}
}

func readFile[T any](path string, read func(io.Reader) (T, error)) (T, error) {
	f, err := os.Open(path)
	if err != nil {
		var none T
		return none, err
	}
	defer f.Close()
	return read(f)
}

func readQuarantines(from io.Reader) ([]policy.KeptQuarantine, error) {
	var out []policy.KeptQuarantine
	d := json.NewDecoder(io.LimitReader(from, maxQuarantines))
	d.DisallowUnknownFields()
	if err := d.Decode(&out); err != nil {
		return nil, fmt.Errorf("%w: %w", errUnsound, err)
	}
	return out, nil
}

// replace writes a file in the place of another. It stays open for appending.
func replace(path string, write func(io.Writer) error) (f *os.File, size int64, err error) {
	temporary := path + temporaryExt
	if err := os.Remove(temporary); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, 0, err
	}
	if f, err = os.OpenFile(temporary, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600); err != nil {
		return nil, 0, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close(), os.Remove(temporary))
		}
	}()
	w := bufio.NewWriterSize(f, 1<<16)
	if err = write(w); err == nil {
		err = w.Flush()
	}
	if err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = os.Rename(temporary, path)
	}
	if err == nil {
		size, err = f.Seek(0, io.SeekCurrent)
	}
	return f, size, err
}

func seenFile(directory string) string        { return filepath.Join(directory, "violations") }
func quarantinesFile(directory string) string { return filepath.Join(directory, "quarantines") }
