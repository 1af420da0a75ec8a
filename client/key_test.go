package client_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"federator.dev/federator/client"
)

func TestParseKey(t *testing.T) {
	for _, test := range []struct {
		in   string
		want client.Key
	}{
		{"fleet/eu-1/shop/web", client.Key{Member: "fleet/eu-1", Namespace: "shop", Name: "web"}},
		{"fleet/eu-1/node-7", client.Key{Member: "fleet/eu-1", Name: "node-7"}},
		{"fleet/eu-1/system:node", client.Key{Member: "fleet/eu-1", Name: "system:node"}},
	} {
		got, err := client.ParseKey(test.in)
		if err != nil || got != test.want {
			t.Errorf("ParseKey(%q) = %#v, %v, want %#v", test.in, got, err, test.want)
		}
		if s := got.String(); s != test.in {
			t.Errorf("ParseKey(%q).String() = %q", test.in, s)
		}
	}
}

func TestParseKey_RefusesWhatIsNotAKey(t *testing.T) {
	for _, in := range []string{"", "/", "web", "eu-1/web", "fleet//shop/web", "fleet/eu-1/shop/", "/eu-1/shop/web", "fleet/eu-1/shop/web/x"} {
		if got, err := client.ParseKey(in); !errors.Is(err, client.ErrKey) {
			t.Errorf("ParseKey(%q) = %#v, %v, want ErrKey", in, got, err)
		}
	}
}

func FuzzParseKey(f *testing.F) {
	for _, s := range []string{"fleet/eu-1/shop/web", "fleet/eu-1/node-7", "a//b/c", "a/b", "////"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		key, err := client.ParseKey(s)
		if err != nil {
			if !errors.Is(err, client.ErrKey) || key != (client.Key{}) {
				t.Fatalf("ParseKey(%q) = %#v, %v", s, key, err)
			}
			return
		}
		if got := key.String(); got != s {
			t.Fatalf("ParseKey(%q).String() = %q", s, got)
		}
		if strings.Count(key.Member, "/") != 1 || key.Name == "" {
			t.Fatalf("ParseKey(%q) = %#v", s, key)
		}
	})
}

func ExampleParseKey() {
	key, err := client.ParseKey("fleet/eu-1/shop/web")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(key.Member, key.Namespace, key.Name)
	// Output: fleet/eu-1 shop web
}
