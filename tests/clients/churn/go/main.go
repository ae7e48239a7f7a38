// Writes and reads keys through Go clients while the cluster changes: main go-redis|rueidis|valkey-go.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/valkey-io/valkey-go"
)

type client interface {
	set(key, value string) error
	get(key string) (string, error)
}

var ctx = context.Background()

type goRedis struct{ redis.UniversalClient }

func (c goRedis) set(key, value string) error    { return c.Set(ctx, key, value, 0).Err() }
func (c goRedis) get(key string) (string, error) { return c.Get(ctx, key).Result() }

type rueidisClient struct{ rueidis.Client }

// Without ToRetryable a write is not tried again when its connection ends.
func (c rueidisClient) set(key, value string) error {
	return c.Do(ctx, c.B().Set().Key(key).Value(value).Build().ToRetryable()).Error()
}
func (c rueidisClient) get(key string) (string, error) {
	return c.Do(ctx, c.B().Get().Key(key).Build()).ToString()
}

type valkeyClient struct{ valkey.Client }

func (c valkeyClient) set(key, value string) error {
	return c.Do(ctx, c.B().Set().Key(key).Value(value).Build().ToRetryable()).Error()
}
func (c valkeyClient) get(key string) (string, error) {
	return c.Do(ctx, c.B().Get().Key(key).Build()).ToString()
}

func connect(name string, seeds []string) (client, error) {
	isSingle := os.Getenv("ENDPOINT") == "single"
	if isSingle {
		seeds = seeds[:1]
	}
	switch name {
	case "go-redis":
		if isSingle {
			return goRedis{redis.NewClient(&redis.Options{Addr: seeds[0]})}, nil
		}
		return goRedis{redis.NewClusterClient(&redis.ClusterOptions{Addrs: seeds})}, nil
	case "rueidis":
		c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: seeds, ForceSingleClient: isSingle})
		return rueidisClient{c}, err
	default:
		c, err := valkey.NewClient(valkey.ClientOption{InitAddress: seeds, ForceSingleClient: isSingle})
		return valkeyClient{c}, err
	}
}

func main() {
	name := os.Args[1]
	seconds, err := strconv.ParseFloat(os.Getenv("SECONDS"), 64)
	if err != nil {
		panic(err)
	}
	until := time.Now().Add(time.Duration(seconds * float64(time.Second)))
	c, err := connect(name, strings.Split(os.Getenv("SEEDS"), ","))
	if err != nil {
		panic(err)
	}
	var lock sync.Mutex
	var workers sync.WaitGroup
	var operations, errors, wrong int
	var told []string
	tell := func(count *int, text string) {
		lock.Lock()
		defer lock.Unlock()
		*count++
		told = append(told, text)
	}
	for worker := range 2 {
		workers.Go(func() {
			done := 0
			for time.Now().Before(until) {
				key, value := fmt.Sprintf("%s:%d:%d", name, worker, done%500), strconv.Itoa(done)
				if err := c.set(key, value); err != nil {
					tell(&errors, "SET: "+err.Error())
					continue
				}
				found, err := c.get(key)
				if err != nil {
					tell(&errors, "GET: "+err.Error())
					continue
				}
				if found != value {
					tell(&wrong, key+" is "+found+", not "+value)
				}
				done++
			}
			lock.Lock()
			operations += done
			lock.Unlock()
		})
	}
	workers.Wait()
	if len(told) > 3 {
		told = told[:3]
	}
	fmt.Println("result", operations, errors, wrong, strings.Join(told, "; "))
}
