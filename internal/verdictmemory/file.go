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
	"slices"

	"github.com/cespare/xxhash/v2"

	"federator.dev/federator/pkg/policy"
)

// The file of violations is magic and records, of which the last of its binding, subject and violation holds, all numbers
// little endian:
//
//	binding    8 bytes, a digest
//	subject    8 bytes, a digest
//	violation  8 bytes, a digest
//	seconds    8 bytes, since 1970; 0: it is gone
//	CRC32C     4 bytes
//
// Where there is a key, all but the sum are two blocks of AES, and magic ends with a digest of the key.
const (
	plainMagic   = "fdvseen1"
	recordBytes  = 8 + 8 + 8 + 8 + 4
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
	own         string // of the magic; "" without a key
}

func (s secrets) magic() string { return plainMagic[:len(plainMagic)-len(s.own)] + s.own }

// newSecrets derives what encrypts from a key, nil for none.
func newSecrets(key []byte) (secrets, error) {
	if key == nil {
		return secrets{}, nil
	}
	own, err := hkdf.Key(sha256.New, key, nil, "federator verdicts", 68)
	if err != nil {
		return secrets{}, err
	}
	s := secrets{own: string(own[64:])}
	if s.records, err = aes.NewCipher(own[:32]); err != nil {
		return secrets{}, err
	}
	block, err := aes.NewCipher(own[32:64])
	if err != nil {
		return secrets{}, err
	}
	s.quarantines, err = cipher.NewGCMWithRandomNonce(block)
	return s, err
}

func (s secrets) appendRecord(b []byte, binding uint64, x policy.Seen) []byte {
	at := len(b)
	b = binary.LittleEndian.AppendUint64(b, binding)
	b = binary.LittleEndian.AppendUint64(b, x.Subject)
	b = binary.LittleEndian.AppendUint64(b, x.Violation)
	b = binary.LittleEndian.AppendUint64(b, uint64(x.At))
	if s.records != nil {
		s.records.Encrypt(b[at:], b[at:])
		s.records.Encrypt(b[at+aes.BlockSize:], b[at+aes.BlockSize:])
	}
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b[at:], castagnoli))
}

var errUnsound = errors.New("it is not as it was written")

// seen is when violations were first seen, by digest of their binding, and of their subject.
type seen map[uint64]map[uint64][]policy.Seen

func (s seen) set(binding uint64, x policy.Seen) {
	of := s[binding]
	if of == nil {
		if x.At == 0 {
			return
		}
		of = map[uint64][]policy.Seen{}
		s[binding] = of
	}
	list := slices.DeleteFunc(of[x.Subject], func(y policy.Seen) bool { return y.Violation == x.Violation })
	if x.At != 0 {
		list = append(list, x)
	}
	if of[x.Subject] = list; len(list) == 0 {
		s.delete(binding, x.Subject)
	}
}

// delete forgets a subject.
func (s seen) delete(binding, subject uint64) {
	delete(s[binding], subject)
	if len(s[binding]) == 0 {
		delete(s, binding)
	}
}

// readSeen reads records up to the first one that is not sound: what follows that was written at the same
// time or later.
func (s secrets) readSeen(from io.Reader) (seen, error) {
	r := bufio.NewReaderSize(from, 1<<16)
	var head [len(plainMagic)]byte
	if _, err := io.ReadFull(r, head[:]); err != nil || string(head[:]) != s.magic() {
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
		if s.records != nil {
			s.records.Decrypt(record[:], record[:])
			s.records.Decrypt(record[aes.BlockSize:], record[aes.BlockSize:])
		}
		word := func(i int) uint64 { return binary.LittleEndian.Uint64(record[8*i:]) }
		at := int64(word(3))
		if at < 0 {
			return out, errUnsound
		}
		out.set(word(0), policy.Seen{Subject: word(1), Violation: word(2), At: at})
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
