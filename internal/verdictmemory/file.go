package verdictmemory

import (
	"bufio"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
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
//	key        8 bytes, a digest; both are one block of AES where there is a key
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

// secrets encrypts what is on disk; the zero value does not.
type secrets struct {
	records     cipher.Block // of digests: equal ones stay equal
	quarantines cipher.AEAD
}

// newSecrets derives what encrypts from a key, nil for none.
func newSecrets(key []byte) (secrets, error) {
	if key == nil {
		return secrets{}, nil
	}
	own, err := hkdf.Key(sha256.New, key, nil, "federator verdicts", 64)
	if err != nil {
		return secrets{}, err
	}
	var s secrets
	if s.records, err = aes.NewCipher(own[:32]); err != nil {
		return secrets{}, err
	}
	block, err := aes.NewCipher(own[32:])
	if err != nil {
		return secrets{}, err
	}
	s.quarantines, err = cipher.NewGCMWithRandomNonce(block)
	return s, err
}

func (s secrets) appendRecord(b []byte, binding uint64, x policy.Seen) []byte {
	at := len(b)
	b = binary.LittleEndian.AppendUint64(b, binding)
	b = binary.LittleEndian.AppendUint64(b, x.Key)
	if s.records != nil {
		s.records.Encrypt(b[at:], b[at:])
	}
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
func (s secrets) readSeen(from io.Reader) (seen, error) {
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
		if s.records != nil {
			s.records.Decrypt(record[:16], record[:16])
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

func (s secrets) readQuarantines(from io.Reader) ([]policy.KeptQuarantine, error) {
	text, err := io.ReadAll(io.LimitReader(from, maxQuarantines))
	if err == nil && s.quarantines != nil {
		text, err = s.quarantines.Open(nil, nil, text, nil)
	}
	var out []policy.KeptQuarantine
	if err == nil {
		err = json.Unmarshal(text, &out)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errUnsound, err)
	}
	return out, nil
}

func (s secrets) writeQuarantines(to io.Writer, list []policy.KeptQuarantine) error {
	text, err := json.Marshal(list)
	if err != nil {
		return err
	}
	if s.quarantines != nil {
		text = s.quarantines.Seal(nil, nil, text, nil)
	}
	_, err = to.Write(text)
	return err
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
