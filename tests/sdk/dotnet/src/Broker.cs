using System;
using System.Collections.Generic;
using System.Diagnostics;
using System.IO;
using System.Linq;
using System.Threading;

namespace Peeklock.Sdk
{
    /// <summary>A broker process of the built program. After Kill, Start serves the stored data at
    /// the same ports.</summary>
    sealed class Broker : IDisposable
    {
        static readonly TimeSpan StartMax = TimeSpan.FromSeconds(20);

        // Short, so that scenarios see locks end.
        static readonly Dictionary<string, string> Settings = new Dictionary<string, string>
        {
            ["PEEKLOCK__LIMITS__LOCK_DURATION_MIN"] = "1s",
            ["PEEKLOCK__SERVER__ARBITERS"] = "2",
            ["PEEKLOCK__AMQP__WORKERS"] = "2",
            ["PEEKLOCK__LOG__FILTER"] = "warn",
        };

        readonly string program;
        readonly string directory;
        readonly string[] flags;
        readonly Dictionary<string, string> ports = new Dictionary<string, string> { ["http"] = "0", ["ws"] = "0", ["amqp"] = "0" };
        Process process;

        public Broker(string program, string directory, params string[] flags)
        {
            this.program = program;
            this.directory = directory;
            this.flags = flags;
            Directory.CreateDirectory(directory);
            Start();
        }

        public string Key { get; private set; }

        public string AmqpPort { get { return ports["amqp"]; } }

        public string HttpPort { get { return ports["http"]; } }

        /// <summary>The certificate of the development authority, if the broker speaks TLS.</summary>
        public string Authority { get { return Path.Combine(directory, "data/tls/authority.pem"); } }

        public string Log { get { return File.ReadAllText(Path.Combine(directory, "log")); } }

        public void Start()
        {
            var arguments = new List<string> { "serve", "--data-dir", "data" };
            arguments.AddRange(flags);
            foreach (var port in ports)
            {
                arguments.Add("--" + port.Key);
                arguments.Add("127.0.0.1:" + port.Value);
            }
            var start = new ProcessStartInfo(program, string.Join(" ", arguments))
            {
                WorkingDirectory = directory,
                RedirectStandardOutput = true,
                RedirectStandardError = true,
            };
            foreach (var name in start.Environment.Keys.Where(name => name.ToUpperInvariant().StartsWith("PEEKLOCK")).ToList())
            {
                start.Environment.Remove(name);
            }
            foreach (var setting in Settings)
            {
                start.Environment[setting.Key] = setting.Value;
            }
            process = Process.Start(start);
            var log = new StreamWriter(Path.Combine(directory, "log"), append: true) { AutoFlush = true };
            var errors = process.StandardError;
            Background(() =>
            {
                using (log)
                {
                    for (var line = errors.ReadLine(); line != null; line = errors.ReadLine())
                    {
                        log.WriteLine(line);
                    }
                }
            });
            var ready = new ManualResetEventSlim();
            var output = process.StandardOutput;
            Background(() =>
            {
                var found = 0;
                for (var line = output.ReadLine(); line != null; line = output.ReadLine())
                {
                    var words = line.Split(new[] { ' ' }, StringSplitOptions.RemoveEmptyEntries);
                    var listener = words.Length == 2 && words[0] == "websocket" ? "ws" : words.FirstOrDefault();
                    if (words.Length == 2 && words[1].Contains("://") && ports.ContainsKey(listener))
                    {
                        ports[listener] = words[1].Substring(words[1].LastIndexOf(':') + 1);
                        found++;
                    }
                    if (found == ports.Count)
                    {
                        ready.Set();
                    }
                }
            });
            if (!ready.Wait(StartMax))
            {
                throw new Failed("the broker did not start; its log says: " + Log);
            }
            var text = File.ReadAllText(Path.Combine(directory, "data/root.connection-string"));
            Key = World.Part(text.Split('\n')[0], "SharedAccessKey");
        }

        static void Background(ThreadStart work)
        {
            new Thread(work) { IsBackground = true }.Start();
        }

        /// <summary>Sends SIGKILL: data that was not durable is lost.</summary>
        public void Kill()
        {
            process.Kill();
            process.WaitForExit();
        }

        public void Dispose()
        {
            if (!process.HasExited)
            {
                Kill();
            }
        }
    }
}
