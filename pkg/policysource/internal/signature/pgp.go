package signature

import (
	"bytes"
	"crypto"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	pgperrors "github.com/ProtonMail/go-crypto/openpgp/errors"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
)

type keyring = openpgp.EntityList

// parseKeyring parses all armored blocks in a text.
func parseKeyring(data []byte) (keyring, error) {
	var out keyring
	begin := []byte("-----BEGIN PGP ")
	for at := bytes.Index(data, begin); at >= 0; {
		next := bytes.Index(data[at+len(begin):], begin)
		block := data[at:]
		if next >= 0 {
			next += at + len(begin)
			block = data[at:next]
		}
		entities, err := openpgp.ReadArmoredKeyRing(bytes.NewReader(block))
		if err != nil {
			return nil, err
		}
		for _, e := range entities {
			if e.PrivateKey != nil {
				return nil, errors.New("it contains a private key: only public keys are allowed")
			}
		}
		out = append(out, entities...)
		at = next
	}
	if len(out) == 0 {
		return nil, errors.New("no armored key found")
	}
	return out, nil
}

var goodHashes = []crypto.Hash{crypto.SHA256, crypto.SHA384, crypto.SHA512, crypto.SHA3_256, crypto.SHA3_512}

func (v *Verifier) verifyPGP(payload, signature []byte, now time.Time) (_ string, err error) {
	defer func() {
		if r := recover(); r != nil { // the signature is untrusted, and the library is large
			err = fmt.Errorf("%w: it cannot be parsed", ErrInvalid)
		}
	}()
	block, err := armor.Decode(bytes.NewReader(signature))
	if err != nil {
		return "", fmt.Errorf("%w: the armor is invalid", ErrInvalid)
	}
	body, err := io.ReadAll(io.LimitReader(block.Body, maxSignature))
	if err != nil {
		return "", fmt.Errorf("%w: the armor is invalid", ErrInvalid)
	}
	config := &packet.Config{Time: func() time.Time { return now }}
	sig, signer, err := openpgp.VerifyDetachedSignature(v.pgp, bytes.NewReader(payload), bytes.NewReader(body), config)
	switch {
	case errors.Is(err, pgperrors.ErrUnknownIssuer):
		return "", fmt.Errorf("%w: %s", ErrUntrusted, issuer(body))
	case errors.Is(err, pgperrors.ErrKeyExpired) || errors.Is(err, pgperrors.ErrSignatureExpired):
		return "", fmt.Errorf("%w: %s", ErrExpired, issuer(body))
	case errors.Is(err, pgperrors.ErrKeyRevoked):
		return "", fmt.Errorf("%w: %s", ErrRevoked, issuer(body))
	case err != nil || sig == nil || signer == nil:
		return "", fmt.Errorf("%w: the key %s did not sign this", ErrInvalid, issuer(body))
	case !slices.Contains(goodHashes, sig.Hash):
		return "", fmt.Errorf("%w: its hash function is %s", ErrInvalid, sig.Hash)
	case sig.CreationTime.Before(signer.PrimaryKey.CreationTime):
		return "", fmt.Errorf("%w: it is older than its key", ErrInvalid)
	}
	name := fmt.Sprintf("PGP:%X", signer.PrimaryKey.Fingerprint)
	if id := signer.PrimaryIdentity(); id != nil {
		name = id.Name + " " + name
	}
	return name, nil
}

// issuer returns the key ID in a signature.
func issuer(body []byte) string {
	p, err := packet.Read(bytes.NewReader(body))
	if sig, ok := p.(*packet.Signature); err == nil && ok && sig.IssuerKeyId != nil {
		return fmt.Sprintf("PGP:%016X", *sig.IssuerKeyId)
	}
	return "with an unknown key ID"
}
