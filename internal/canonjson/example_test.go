package canonjson_test

import (
	"fmt"

	"federator.dev/federator/internal/canonjson"
)

func Example() {
	body := []byte(`{"kind":"Pod","metadata":{"labels":{"app":"web","tier":"front"},"name":"web-1"},"spec":{}}`)
	r := canonjson.NewReader(canonjson.Get(body, "metadata", "labels"))
	for more := r.Open('{'); more; more = r.Next('}') {
		key, _ := r.Key()
		value, _ := r.Text()
		fmt.Printf("%s is %s\n", key, value)
	}
	if err := r.End(); err != nil {
		fmt.Println(err)
	}
	// Output:
	// app is web
	// tier is front
}

func ExampleReader_Err() {
	r := canonjson.NewReader([]byte(`{"replicas":"three"}`))
	for more := r.Open('{'); more; more = r.Next('}') {
		r.Key()
		fmt.Printf("%q\n", r.Number())
	}
	fmt.Println(r.Err())
	// Output:
	// ""
	// not canonical JSON: at byte 12 of 20
}
