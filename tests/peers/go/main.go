// Does with a peer's lock what a test asks for: JSON lines in, JSON lines out, as tests/peers/README.md describes them.
package main

import (
	"encoding/json"
	"errors"
	"io"
	"log"
	"os"
	"time"
)

type request struct {
	ID     int      `json:"id"`
	Op     string   `json:"op"`
	Peer   string   `json:"peer"`
	URLs   []string `json:"urls"`
	Name   string   `json:"name"`
	TTLMs  int64    `json:"ttl_ms"`
	WaitMs *int64   `json:"wait_ms"`
}

type answer struct {
	ID       int    `json:"id"`
	Acquired *bool  `json:"acquired,omitempty"`
	Error    string `json:"error,omitempty"`
}

type driver struct {
	session session
	lock    lock
}

func (d *driver) perform(asked request) (acquired *bool, err error) {
	switch asked.Op {
	case "open":
		open, known := peers[asked.Peer]
		if !known {
			return nil, errors.New("no such peer: " + asked.Peer)
		}
		d.session, err = open(asked.URLs)
		return nil, err
	case "acquire":
		var wait *time.Duration
		if asked.WaitMs != nil {
			limit := time.Duration(*asked.WaitMs) * time.Millisecond
			wait = &limit
		}
		d.lock = d.session(asked.Name, time.Duration(asked.TTLMs)*time.Millisecond, wait)
		won, err := d.lock.acquire()
		return &won, err
	case "release":
		return nil, d.lock.release()
	}
	return nil, errors.New("no such op: " + asked.Op)
}

func main() {
	var d driver
	lines, answers := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	for {
		var asked request
		if err := lines.Decode(&asked); err == io.EOF {
			return
		} else if err != nil {
			log.Fatal(err)
		}
		acquired, err := d.perform(asked)
		said := answer{ID: asked.ID, Acquired: acquired}
		if err != nil {
			said = answer{ID: asked.ID, Error: err.Error()}
		}
		if err := answers.Encode(said); err != nil {
			log.Fatal(err)
		}
	}
}
