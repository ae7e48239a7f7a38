import java.io.File;
import java.io.FileInputStream;
import java.io.IOException;
import java.nio.file.Path;
import java.security.KeyStore;
import java.security.cert.CertificateFactory;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import javax.net.ssl.KeyManager;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLSocketFactory;
import javax.net.ssl.TrustManagerFactory;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.DefaultJedisSocketFactory;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.JedisClientConfig;
import redis.clients.jedis.JedisPooled;
import redis.clients.jedis.JedisPubSub;
import redis.clients.jedis.JedisSocketFactory;
import redis.clients.jedis.Pipeline;
import redis.clients.jedis.RedisProtocol;
import redis.clients.jedis.Response;
import redis.clients.jedis.Transaction;
import redis.clients.jedis.UnifiedJedis;
import redis.clients.jedis.csc.CacheConfig;
import redis.clients.jedis.exceptions.JedisConnectionException;
import redis.clients.jedis.exceptions.JedisDataException;
import redis.clients.jedis.params.ScanParams;
import redis.clients.jedis.params.ShutdownParams;
import redis.clients.jedis.resps.ScanResult;

/** What an application does through Jedis: RESP2 and RESP3, over TCP, a Unix socket and TLS. */
public class Check {
  static void check(String name, Object given, Object expected) {
    if (!Objects.equals(given, expected)) {
      throw new AssertionError(name + ": " + given + " is not " + expected);
    }
    System.out.println("ok " + name);
  }

  static void session(String label, JedisSocketFactory sockets, JedisClientConfig config)
      throws Exception {
    try (Jedis client = new Jedis(sockets, config); Jedis other = new Jedis(sockets, config)) {
      check(label + " connect", client.ping(), "PONG");
      check(label + " library name", client.clientInfo().contains(" lib-name=jedis "), true);
      client.flushDB();

      Pipeline pipeline = client.pipelined();
      for (int n = 0; n < 1000; n++) {
        pipeline.set("key:" + n, "" + n);
      }
      Response<String> last = pipeline.get("key:999");
      pipeline.sync();
      check(label + " pipeline", last.get(), "999");
      Set<String> keys = new HashSet<>();
      String cursor = ScanParams.SCAN_POINTER_START;
      do {
        ScanResult<String> batch = client.scan(cursor, new ScanParams().match("key:*").count(50));
        keys.addAll(batch.getResult());
        cursor = batch.getCursor();
      } while (!cursor.equals(ScanParams.SCAN_POINTER_START));
      check(label + " scan", keys.size(), 1000);

      client.watch("key:1");
      Transaction transaction = client.multi();
      transaction.set("key:1", "42");
      transaction.incr("key:1");
      check(label + " transaction", transaction.exec(), List.of("OK", 43L));
      client.watch("key:1");
      other.set("key:1", "other");
      transaction = client.multi();
      transaction.set("key:1", "mine");
      check(label + " watch", transaction.exec(), null);

      client.hset("user", Map.of("name", "Ada", "year", "1815"));
      check(label + " hash", client.hgetAll("user"), Map.of("name", "Ada", "year", "1815"));
      client.zadd("board", 2.5, "b");
      check(label + " score", client.zscore("board", "b"), 2.5);
      client.sadd("tags", "x", "y");
      check(label + " set", client.smembers("tags"), Set.of("x", "y"));

      LinkedBlockingQueue<String> heard = new LinkedBlockingQueue<>();
      CountDownLatch subscribed = new CountDownLatch(1);
      JedisPubSub listener = new JedisPubSub() {
        @Override
        public void onSubscribe(String channel, int count) {
          subscribed.countDown();
        }

        @Override
        public void onMessage(String channel, String message) {
          heard.add(channel + " " + message);
          unsubscribe();
        }
      };
      Thread thread = new Thread(() -> {
        try (Jedis subscriber = new Jedis(sockets, config)) {
          subscriber.subscribe(listener, "news");
        }
      });
      thread.start();
      subscribed.await(10, TimeUnit.SECONDS);
      client.publish("news", "hello");
      check(label + " publish", heard.poll(10, TimeUnit.SECONDS), "news hello");
      thread.join();

      Thread pusher = new Thread(() -> {
        try {
          Thread.sleep(100);
        } catch (InterruptedException e) {
          throw new IllegalStateException(e);
        }
        other.rpush("queue", "job");
      });
      pusher.start();
      check(label + " blocking pop", client.blpop(5, "queue"), List.of("queue", "job"));
      pusher.join();
      check(label + " blocking pop times out", client.blpop(0.1, "queue"), null);
      try {
        client.lpush("user", "x");
        throw new AssertionError("LPUSH on a hash");
      } catch (JedisDataException error) {
        check(label + " error", error.getMessage().startsWith("WRONGTYPE"), true);
      }
      pipeline = client.pipelined();
      pipeline.set("word", "x");
      Response<Long> failed = pipeline.incr("word");
      Response<String> got = pipeline.get("word");
      pipeline.sync();
      check(label + " after an error in a pipeline", got.get(), "x");
      try {
        failed.get();
        throw new AssertionError("INCR of a word");
      } catch (JedisDataException error) {
        check(label + " error in a pipeline", error.getMessage(),
            "ERR value is not an integer or out of range");
      }
    }
  }

  /** A client that keeps what it has read is told when another changes it. */
  static void caching(HostAndPort address) throws Exception {
    JedisClientConfig config =
        DefaultJedisClientConfig.builder().protocol(RedisProtocol.RESP3).build();
    CacheConfig keeping = CacheConfig.builder().maxSize(100).build();
    try (UnifiedJedis reader = new UnifiedJedis(address, config, keeping);
        Jedis writer = new Jedis(address)) {
      writer.set("cached", "old");
      check("Jedis caching reads", reader.get("cached"), "old");
      check("Jedis caching keeps", reader.get("cached"), "old");
      check("Jedis caching hits", reader.getCache().getStats().getHitCount(), 1L);
      writer.set("cached", "new");
      String value = "old";
      for (int tries = 0; tries < 1000 && value.equals("old"); tries++) {
        Thread.sleep(10);
        value = reader.get("cached");
      }
      check("Jedis caching is invalidated", value, "new");
    }
  }

  /** A pool whose connections are dead makes new ones. */
  static void restart(HostAndPort address) throws Exception {
    try (JedisPooled client = new JedisPooled(address)) {
      client.set("before", "restart");
      try (Jedis admin = new Jedis(address)) {
        admin.shutdown(ShutdownParams.shutdownParams().nosave());
      } catch (JedisConnectionException goneAsItShould) {
        // The server closes the connection instead of a reply.
      }
      String reply = null;
      for (int tries = 0; tries < 300 && reply == null; tries++) {
        try {
          reply = client.set("after", "restart");
        } catch (JedisConnectionException stillDown) {
          Thread.sleep(100);
        }
      }
      check("Jedis reconnects", reply, "OK");
      check("Jedis server is another", client.exists("before"), false);
    }
  }

  /** Connections to a Unix socket; Java's have no classic socket, so this is one. */
  static JedisSocketFactory unix(String path) {
    return () -> {
      try {
        return new UnixSocket(Path.of(path));
      } catch (IOException e) {
        throw new JedisConnectionException(e);
      }
    };
  }

  /** Trusts the authority; proves itself with the key store, if there is one. */
  static SSLSocketFactory trusting(String authority, String keyStore) throws Exception {
    KeyStore store = KeyStore.getInstance(KeyStore.getDefaultType());
    store.load(null, null);
    try (FileInputStream stream = new FileInputStream(authority)) {
      store.setCertificateEntry("ca", CertificateFactory.getInstance("X.509").generateCertificate(stream));
    }
    TrustManagerFactory trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
    trust.init(store);
    KeyManager[] keys = null;
    if (keyStore != null) {
      char[] password = "changeit".toCharArray();
      KeyManagerFactory own = KeyManagerFactory.getInstance(KeyManagerFactory.getDefaultAlgorithm());
      own.init(KeyStore.getInstance(new File(keyStore), password), password);
      keys = own.getKeyManagers();
    }
    SSLContext context = SSLContext.getInstance("TLS");
    context.init(keys, trust.getTrustManagers(), null);
    return context.getSocketFactory();
  }

  static JedisClientConfig tls(RedisProtocol protocol, SSLSocketFactory sockets) {
    return DefaultJedisClientConfig.builder()
        .protocol(protocol).ssl(true).sslSocketFactory(sockets).build();
  }

  public static void main(String[] arguments) throws Exception {
    String authority = System.getenv("CA");
    SSLSocketFactory known = trusting(authority, System.getenv("KEY_STORE"));
    HostAndPort address = new HostAndPort("localhost", Integer.parseInt(System.getenv("PORT")));
    HostAndPort tlsAddress = new HostAndPort("localhost", Integer.parseInt(System.getenv("TLS_PORT")));
    for (RedisProtocol protocol : RedisProtocol.values()) {
      String label = "Jedis " + protocol;
      JedisClientConfig plain = DefaultJedisClientConfig.builder().protocol(protocol).build();
      session(label + " TCP", new DefaultJedisSocketFactory(address), plain);
      session(label + " Unix", unix(System.getenv("SOCKET")), plain);
      JedisClientConfig tls = tls(protocol, known);
      session(label + " TLS", new DefaultJedisSocketFactory(tlsAddress, tls), tls);
    }
    JedisClientConfig stranger = tls(RedisProtocol.RESP2, trusting(authority, null));
    try (Jedis client = new Jedis(tlsAddress, stranger)) {
      client.ping();
      throw new AssertionError("TLS without a certificate");
    } catch (JedisConnectionException refused) {
      System.out.println("ok Jedis TLS wants a certificate");
    }
    caching(address);
    if (System.getenv("PROXIED") == null) restart(address);
  }
}
