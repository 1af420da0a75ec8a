package cookies

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
)

// keyBytes is the size of the key that seals cookies.
const keyBytes = 32

// errSeal is the error of a cookie that was not sealed here, for this purpose.
var errSeal = errors.New("not sealed with this key")

// Sealer seals values, by AES-256-GCM with a key for one purpose: no cookie can stand for
// another.
type Sealer struct{ aead cipher.AEAD }

func NewSealer(key []byte, purpose string) (Sealer, error) {
	if len(key) != keyBytes {
		return Sealer{}, fmt.Errorf("the key has %d bytes, must have %d", len(key), keyBytes)
	}
	derived, err := hkdf.Key(sha256.New, key, nil, "federator web UI: "+purpose, keyBytes)
	if err != nil {
		return Sealer{}, err
	}
	block, err := aes.NewCipher(derived)
	if err != nil {
		return Sealer{}, err
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	return Sealer{aead}, err
}

// NewKey returns a key of this process.
func NewKey() []byte {
	key := make([]byte, keyBytes)
	rand.Read(key) // never fails
	return key
}

// Seal returns a value as text for a cookie.
func (s Sealer) Seal(value any) (string, error) {
	plain, err := json.Marshal(value)
	if err != nil {
		return "", err
	}
	return base64.RawURLEncoding.EncodeToString(s.aead.Seal(nil, nil, plain, nil)), nil
}

// Open is the reverse of Seal.
func (s Sealer) Open(text string, into any) error {
	sealed, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil {
		return errSeal
	}
	plain, err := s.aead.Open(nil, nil, sealed, nil)
	if err != nil {
		return errSeal
	}
	return json.Unmarshal(plain, into)
}
